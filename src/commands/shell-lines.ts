// One variable as a line that a shell reads back as exactly the same text. Pure.
// It must never print a value that could end its quotes: these lines are fed to eval.

/** Shells that lines can be written for; `bash` is read by sh, dash, zsh and ksh too. */
export type Shell = 'bash' | 'fish' | 'powershell';

const NAME = /^[A-Za-z_][A-Za-z0-9_]*$/;

/** The line that sets and exports a variable. Throws for a name that is none and for a NUL, which no variable can hold. */
export function shellLine(shell: Shell, name: string, value: string): string {
  refuseUnspeakable(name, value);
  switch (shell) {
    case 'bash':
      return `export ${name}='${value.replaceAll("'", `'\\''`)}'`;
    case 'fish':
      return `set -gx ${name} '${value.replace(/[\\']/g, '\\$&')}'`;
    case 'powershell':
      // PowerShell takes four typographic quotes for the plain one; each is written twice to stand for itself.
      return `$Env:${name} = '${value.replace(/['\u2018-\u201b]/g, '$&$&')}'`;
  }
}

/** The line of a file for `docker run --env-file`, which knows no quoting. Throws where the value has a line break too. */
export function envFileLine(name: string, value: string): string {
  refuseUnspeakable(name, value);
  if (/[\r\n]/.test(value))
    throw new Error(`the value of ${name} has a line break, which an env file cannot hold; choose another path or URL`);
  return `${name}=${value}`;
}

function refuseUnspeakable(name: string, value: string): void {
  if (!NAME.test(name)) throw new Error(`"${name}" is not the name of a variable; use letters, digits and "_"`);
  if (value.includes('\0'))
    throw new Error(`the value of ${name} has a NUL, which no variable can hold; choose another path or URL`);
}
