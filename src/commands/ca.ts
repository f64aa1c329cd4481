// `ca`: where the certificate of the door is, what it is, and how to have it trusted. Makes the CA where there is none.
// It must never touch a CA that is there, show anything of a key, or make one that a running proxy would not issue from.
import { X509Certificate } from 'node:crypto';
import { readFile } from 'node:fs/promises';
import { resolve } from 'node:path';
import { openAuthority } from '../certificates/certificate-authority.ts';
import { besideBundle, bundlePath } from '../certificates/public-folder.ts';
import type { Config } from '../config/schema.ts';
import { complainOfConfig, configPath, readConfig } from './context.ts';
import type { CommandContext, ConfigOption } from './context.ts';
import { EXIT } from './exit-codes.ts';
import type { ExitCode } from './exit-codes.ts';
import { javaTrust } from './sandbox-variables.ts';

/** Options of `ca`; at most one of the four. */
export interface CaOptions extends ConfigOption {
  readonly path?: boolean | undefined;
  readonly pem?: boolean | undefined;
  readonly fingerprint?: boolean | undefined;
  readonly bundle?: boolean | undefined;
  readonly json?: boolean | undefined;
}

/** Shows the CA. Throws an AuthorityError, one line with the remedy, where it is not fit to use. */
export async function ca(options: CaOptions, context: CommandContext): Promise<ExitCode> {
  const { voice, env, directory } = context;
  const file = configPath(options, env);
  const parsed = await readConfig(file, directory);
  if ('problems' in parsed) return complainOfConfig(voice, parsed.problems, file);
  const { certificate, key } = parsed.config.ca;
  const path = resolve(directory, certificate);
  const opened = key === null ? await readPublished(path) : await open({ certificate, key }, directory);
  if (opened === undefined) {
    voice.complain(
      `there is no CA certificate "${path}" yet: ca.key is null, so the proxy makes one at each start; start it first`,
    );
    return EXIT.failed;
  }
  if (opened.warning !== undefined) voice.say(`warning: ${opened.warning}`);
  const bundle = bundlePath(path);
  const x509 = new X509Certificate(opened.pem);
  const wanted = [
    options.path === true ? path : undefined,
    options.bundle === true ? bundle : undefined,
    options.fingerprint === true ? x509.fingerprint256 : undefined,
    options.pem === true ? opened.pem : undefined,
  ].find((text) => text !== undefined);
  if (wanted !== undefined) voice.data(wanted);
  else
    show(
      {
        certificate: path,
        bundle,
        trust_store: besideBundle(bundle, 'here').trustStore,
        subject: x509.subject,
        fingerprint_sha256: x509.fingerprint256,
        not_after: new Date(x509.validTo).toISOString(),
      },
      options,
      context,
    );
  return EXIT.ok;
}

interface Opened {
  readonly pem: string;
  readonly warning?: string;
}

async function open(paths: { readonly certificate: string; readonly key: string }, directory: string): Promise<Opened> {
  const { certificatePem, warning } = await openAuthority({
    certificate: resolve(directory, paths.certificate),
    key: resolve(directory, paths.key),
  });
  return { pem: certificatePem, ...(warning === undefined ? {} : { warning }) };
}

/** A CA whose key lives in a proxy's memory: opening it here would replace the certificate that sandboxes were given. */
async function readPublished(path: string): Promise<Opened | undefined> {
  const pem = await readFile(path, 'utf8').catch(() => undefined); // missing or unreadable: there is none to show
  return pem === undefined ? undefined : { pem };
}

function show(facts: Readonly<Record<string, string>>, options: CaOptions, { voice }: CommandContext): void {
  if (options.json === true || !voice.onTerminal) {
    voice.json(facts);
    return;
  }
  voice.table(Object.entries(facts));
  voice.say('to trust it in a shell: eval "$(sallyport env)"');
  voice.say(
    `to trust it in Debian, Ubuntu or Alpine: copy it to /usr/local/share/ca-certificates/sallyport.crt and run update-ca-certificates`,
  );
  voice.say(`to trust it in Java: ${javaTrust(facts['trust_store'] ?? '').join(' ')}`);
  voice.say(
    `to trust it in Chromium, whose folder ~/.pki/nssdb must be there: certutil -d sql:$HOME/.pki/nssdb -A -t C,, -n sallyport -i "${facts['certificate'] ?? ''}"`,
  );
}

/** Paths of what a sandbox may see, absolute. */
export function publicPaths(config: Config, directory: string): { readonly ca: string; readonly bundle: string } {
  const path = resolve(directory, config.ca.certificate);
  return { ca: path, bundle: bundlePath(path) };
}
