// The hooks of an environment, as the commands of `sallyport-hook` come to them: from the admin listener, and never from the workspace.
// It must never mix them with hooks that are found here: who names an environment means its hooks alone.
import type { EnvironmentFile, EnvironmentHooks } from '../../hooks/environment-hooks.ts';
import type { HookSet } from '../../hooks/words.ts';
import { EXIT } from '../exit-codes.ts';
import type { ExitCode } from '../exit-codes.ts';
import type { Voice } from '../voice.ts';
import { hooksOf, readNamed, setting } from './places.ts';
import type { PlaceOptions } from './places.ts';

/** The admin listener and its token, where one is named. Throws TypeError where the token is not to be had. */
export function adminOf(options: PlaceOptions): { readonly admin: string; readonly token: string } | undefined {
  const admin = options.admin ?? setting('SALLYPORT_ADMIN_URL');
  const tokenFile = options.tokenFile ?? setting('SALLYPORT_ADMIN_TOKEN_FILE');
  if (admin === undefined) return undefined;
  if (tokenFile === undefined)
    throw new TypeError('--admin needs --token-file: the admin listener counts nothing without its token');
  return { admin, token: readNamed(tokenFile, 'the admin token').trim() };
}

/**
 * The hooks of the environment that is named, ready to run out of the sandbox's reach; undefined where none is named. Throws TypeError
 * where the options make no sense together, and Error with one line where the hooks are not to be had.
 */
export async function openEnvironment(options: PlaceOptions): Promise<EnvironmentHooks | undefined> {
  const { environment: id, dialect } = options;
  if (id === undefined) return undefined;
  const files = await filesOf(id, options);
  const { openEnvironmentHooks } = await import('../../hooks/environment-hooks.ts');
  return openEnvironmentHooks(id, files, dialect);
}

/**
 * The hooks that the options lead to, to be looked at: those of the environment that is named, or those of this machine. Where they are not
 * to be had, that is said, and the exit status given: 2 where the options make no sense together, 1 where the proxy does not give them.
 */
export async function hooksToShow(options: PlaceOptions, voice: Voice): Promise<HookSet | ExitCode> {
  const { environment: id, dialect } = options;
  if (id === undefined) return hooksOf(options);
  try {
    const files = await filesOf(id, options);
    const { readEnvironmentHooks } = await import('../../hooks/environment-hooks.ts');
    return readEnvironmentHooks(id, files, dialect);
  } catch (error) {
    voice.complain(error instanceof Error ? error.message : 'internal error');
    return error instanceof TypeError ? EXIT.usage : EXIT.failed;
  }
}

async function filesOf(id: string, options: PlaceOptions): Promise<readonly EnvironmentFile[]> {
  if (options.hooks !== undefined || options.plugin !== undefined)
    throw new TypeError('--environment takes its hooks from there alone; leave --hooks and --plugin out');
  const { admin, token } = adminOf(options) ?? {};
  if (admin === undefined || token === undefined)
    throw new TypeError('--environment needs --admin and --token-file: its hooks are kept by the proxy');
  const { fetchEnvironment } = await import('../../hooks/fetch-environment.ts');
  return fetchEnvironment({ id, admin, token });
}
