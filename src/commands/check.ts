// `check`: is this config good? Walks the same road as a start, up to the point where sockets would open.
// It must never open a listener, make a file, or show a secret.
import { resolve } from 'node:path';
import type { Compiled } from '../config/compile.ts';
import { listenersOf } from '../config/listeners.ts';
import { loadConfig } from '../config/load.ts';
import { formatAuthority, parseHost } from '../exchange/authority.ts';
import type { Config } from '../config/schema.ts';
import { complainOfConfig, configPath } from './context.ts';
import type { CommandContext, ConfigOption } from './context.ts';
import { EXIT } from './exit-codes.ts';
import type { ExitCode } from './exit-codes.ts';

/** Options of `check`. */
export interface CheckOptions extends ConfigOption {
  readonly json?: boolean | undefined;
}

/** What a good config amounts to. */
interface Summary {
  /** Of the top-level `network` and of all sandboxes */
  readonly rules: number;
  readonly denylist: number;
  readonly credentials: readonly { readonly id: string; readonly type: string; readonly available: boolean }[];
  readonly sandboxes: readonly string[];
  /** By their keys, as in `transparent.tls` */
  readonly listeners: { readonly proxy: string; readonly admin: string } & Readonly<Record<string, string>>;
  readonly ca: string;
  readonly audit: string;
}

/** Says all that is wrong with the config, or what it amounts to. 0 or 78. */
export async function check(options: CheckOptions, context: CommandContext): Promise<ExitCode> {
  const { voice, env, directory } = context;
  const file = configPath(options, env);
  const asJson = options.json === true || !voice.onTerminal;
  const loaded = await loadConfig(resolve(directory, file), { env, baseDirectory: directory });
  if ('problems' in loaded) {
    if (asJson) voice.json({ valid: false, file, problems: loaded.problems, warnings: [] });
    if (options.json === true) return EXIT.config;
    complainOfConfig(voice, loaded.problems, file);
    voice.say(`${loaded.problems.length === 1 ? 'one problem' : `${loaded.problems.length} problems`} in ${file}`, 'bad');
    return EXIT.config;
  }
  const { compiled } = loaded;
  const summary = summaryOf(compiled);
  if (asJson) voice.json({ valid: true, file, warnings: compiled.warnings, summary });
  if (options.json === true) return EXIT.ok;
  for (const warning of compiled.warnings) voice.say(`warning: ${file}: ${warning}`);
  if (!asJson) voice.table(rowsOf(summary));
  voice.say(`${file} is valid`, 'good');
  return EXIT.ok;
}

function summaryOf({ config, credentials, snapshot }: Compiled): Summary {
  const networks = [config.network, ...Object.values(config.sandboxes).map((sandbox) => sandbox.network)];
  const lists = networks.map((network) => (typeof network === 'object' ? network : {}));
  return {
    rules: lists.reduce((sum, { allowlist }) => sum + (allowlist?.length ?? 0), 0),
    denylist: lists.reduce((sum, { denylist }) => sum + (denylist?.length ?? 0), 0),
    credentials: [...credentials.values()].map((each) => ({ id: each.id, type: each.type, available: !('unavailable' in each) })),
    sandboxes: snapshot.sandboxes.ids,
    listeners: {
      proxy: formatListen(config.listen.proxy),
      ...transparentOf(config),
      admin: formatListen(config.admin.listen),
    },
    ca: config.ca.certificate,
    audit: config.audit.path === '-' ? 'standard output' : config.audit.path,
  };
}

function transparentOf(config: Config): Record<string, string> {
  const led = listenersOf(config).filter(({ path }) => path[1] === 'transparent');
  return Object.fromEntries(led.map((listener) => [listener.path.slice(1).map(String).join('.'), formatListen(listener)]));
}

/** A listening address as `host:port`, IPv6 in brackets. */
export function formatListen(listen: Config['listen']['proxy']): string {
  const host = parseHost(listen.host.includes(':') ? `[${listen.host}]` : listen.host);
  return host === undefined ? `${listen.host}:${listen.port}` : formatAuthority({ host, port: listen.port, address: false });
}

function rowsOf(summary: Summary): [string, string | readonly string[]][] {
  const credentials = summary.credentials.map(({ id, type, available }) => `${id} (${type}${available ? '' : ', unavailable'})`);
  return [
    ['rules', `${summary.rules} on the allowlist, ${summary.denylist} on the denylist`],
    ['credentials', credentials.length === 0 ? 'none' : credentials],
    ['sandboxes', summary.sandboxes],
    ...Object.entries(summary.listeners),
    ['ca', summary.ca],
    ['audit', summary.audit],
  ];
}
