// `env`: the variables and CA files that make a sandbox's tools use and trust the door, as a script, an env file or JSON,
// and the variables of the sandbox's own environment, placeholders in the place of credentials.
// The one secret it may print is the token of the sandbox that was asked for, inside its proxy URL: that is what the sandbox is given.
import { posix, resolve } from 'node:path';
import { besideBundle, MOUNTED_AT } from '../certificates/public-folder.ts';
import type { Config } from '../config/schema.ts';
import { readSecret } from '../credentials/secret-source.ts';
import { formatAuthority, parseHost } from '../exchange/authority.ts';
import { DEFAULT_SANDBOX } from '../exchange/snapshot.ts';
import { publicPaths } from './ca.ts';
import { complainOfConfig, configPath, readConfig } from './context.ts';
import type { CommandContext, ConfigOption } from './context.ts';
import { directHosts } from './direct-hosts.ts';
import { EXIT } from './exit-codes.ts';
import type { ExitCode } from './exit-codes.ts';
import { askForEnvironment, overruled, variablesOf } from './own-variables.ts';
import type { OwnVariables } from './own-variables.ts';
import { SANDBOX_VARIABLES, sandboxVariables } from './sandbox-variables.ts';
import type { SandboxFacts } from './sandbox-variables.ts';
import { envFileLine, shellLine } from './shell-lines.ts';
import type { Shell } from './shell-lines.ts';

/** Options of `env`. */
export interface EnvOptions extends ConfigOption {
  readonly shell?: Shell | undefined;
  /** For `docker run --env-file`; the folder of the CA is taken to be mounted at /etc/sallyport */
  readonly docker?: boolean | undefined;
  readonly json?: boolean | undefined;
  /** Path of the CA's certificate inside the sandbox */
  readonly ca?: string | undefined;
  /** Path of the bundle inside the sandbox; left out, `bundle.pem` beside the certificate */
  readonly bundle?: string | undefined;
  /** URL of the proxy as the sandbox reaches it */
  readonly proxy?: string | undefined;
  /** Of the config; with `url`, an environment of the running proxy */
  readonly sandbox?: string | undefined;
  /** URL of the admin listener that keeps the environment */
  readonly url?: string | undefined;
  /** File of the admin token; left out, the one that the config names */
  readonly tokenFile?: string | undefined;
}

/** A question that stays open. */
interface Open {
  readonly problem: string;
  readonly code: ExitCode;
}

type Outcome<T> = T | Open;

/** Prints the variables. 2 where a question stays open that only the caller can answer. */
export async function env(options: EnvOptions, context: CommandContext): Promise<ExitCode> {
  const { voice, directory } = context;
  const file = configPath(options, context.env);
  const parsed = await readConfig(file, directory);
  if ('problems' in parsed) return complainOfConfig(voice, parsed.problems, file);
  const { config } = parsed;
  const url = await proxyUrl(config, options, context);
  if ('problem' in url) return leaveOpen(url, voice);
  const own = await ownVariables(config, url, { options, context });
  if ('problem' in own) return leaveOpen(own, voice);
  const files = insidePaths(config, options, directory);
  const facts: SandboxFacts = { proxy: url.text, direct: directHosts(own.networks), ...files };
  const ofProxy = sandboxVariables(facts);
  const variables = new Map([...own.variables, ...ofProxy]);
  const lost = overruled(own.variables, ofProxy);
  const notes = notesOn(config, options, { facts, withToken: url.withToken, directory, overruled: lost });
  if (options.json === true) {
    const why = Object.fromEntries(SANDBOX_VARIABLES.map(({ name, why: reason }) => [name, reason]));
    const { trustStore: trust_store, ...rest } = files;
    voice.json({ variables: Object.fromEntries(variables), files: { ...rest, trust_store }, why, notes });
    return EXIT.ok;
  }
  const shell = options.shell ?? 'bash';
  const lines = [...variables].map(([name, value]) =>
    options.docker === true ? envFileLine(name, value) : shellLine(shell, name, value),
  );
  voice.data(lines.join('\n'));
  for (const note of notes) voice.say(`note: ${note}`);
  return EXIT.ok;
}

function leaveOpen({ problem, code }: Open, voice: CommandContext['voice']): ExitCode {
  voice.complain(problem);
  return code;
}

interface ProxyUrl {
  readonly text: string;
  readonly withToken: boolean;
  readonly sandbox: string | undefined;
}

async function proxyUrl(config: Config, options: EnvOptions, context: CommandContext): Promise<Outcome<ProxyUrl>> {
  const url = baseUrl(config, options);
  if ('problem' in url) return url;
  if (options.url !== undefined && (options.sandbox === undefined || url.password === '')) {
    const problem =
      'an environment of the running proxy is named with --sandbox, and its proxy URL, which was shown when it was made, with --proxy';
    return { problem, code: EXIT.usage };
  }
  if (url.username !== '' || url.password !== '') return { text: bare(url), withToken: true, sandbox: options.sandbox };
  const sandbox = chooseSandbox(config, options.sandbox);
  if (typeof sandbox === 'object') return sandbox;
  const token = sandbox === undefined ? undefined : config.sandboxes[sandbox]?.token;
  if (sandbox === undefined || token === undefined) return { text: bare(url), withToken: false, sandbox };
  const reading = await readSecret(token, { baseDirectory: context.directory, env: context.env });
  if (reading.kind !== 'read') return { problem: `sandboxes.${sandbox}.token: ${reading.problem}`, code: EXIT.config };
  url.username = sandbox;
  // The setters of URL leave a few characters alone that tools read differently; encodeURIComponent and quotes do not.
  url.password = encodeURIComponent(reading.secret.reveal()).replace(/[!'()*~]/g, percent);
  return { text: bare(url), withToken: true, sandbox };
}

function percent(character: string): string {
  return `%${character.charCodeAt(0).toString(16).toUpperCase()}`;
}

/** Always with the port, for curl takes 1080 where there is none; without the slash at the end, which some tools take for a path. */
function bare({ protocol, username, password, hostname, port }: URL): string {
  const userinfo = username === '' && password === '' ? '' : `${username}:${password}@`;
  const standard = protocol === 'https:' ? '443' : '80';
  return `${protocol}//${userinfo}${hostname}:${port === '' ? standard : port}`;
}

function baseUrl(config: Config, options: EnvOptions): Outcome<URL> {
  if (options.proxy !== undefined) {
    const url = URL.canParse(options.proxy) ? new URL(options.proxy) : undefined;
    const plain =
      url !== undefined && /^https?:$/.test(url.protocol) && url.pathname === '/' && url.search === '' && url.hash === '';
    // The text is not quoted: it may hold a token.
    return plain
      ? url
      : { problem: '--proxy is no URL of a proxy; write it like "http://proxy.internal:8080"', code: EXIT.usage };
  }
  const { host, port } = config.listen.proxy;
  if (port === 0) return { problem: 'listen.proxy takes any free port; name the URL with --proxy', code: EXIT.usage };
  return new URL(`http://${reachableHost(host, options.docker === true)}:${port}`);
}

/** What every interface, or loopback, is called from where the sandbox is. */
function reachableHost(host: string, inContainer: boolean): string {
  const everywhere = host === '0.0.0.0' || host === '::';
  if (inContainer && (everywhere || isLoopback(host))) return 'host.docker.internal';
  if (everywhere) return '127.0.0.1';
  const parsed = parseHost(host.includes(':') ? `[${host}]` : host);
  return parsed === undefined ? host : formatAuthority({ host: parsed, port: 0, address: false }, 0);
}

function isLoopback(host: string): boolean {
  return host === 'localhost' || host === '::1' || host.startsWith('127.');
}

function chooseSandbox(config: Config, asked: string | undefined): Outcome<string | undefined> {
  const ids = Object.keys(config.sandboxes);
  if (asked !== undefined) {
    if (Object.hasOwn(config.sandboxes, asked) || (ids.length === 0 && asked === DEFAULT_SANDBOX)) return asked;
    const known = ids.length === 0 ? 'the config names none; leave --sandbox out' : `there are: ${ids.join(', ')}`;
    return { problem: `there is no sandbox "${asked}"; ${known}`, code: EXIT.usage };
  }
  if (ids.length > 1) return { problem: `say for which sandbox with --sandbox: ${ids.join(', ')}`, code: EXIT.usage };
  return ids[0];
}

/** What the sandbox was given of its own, and the networks by which it may reach hosts of its own. */
async function ownVariables(
  config: Config,
  { sandbox }: ProxyUrl,
  { options, context }: { readonly options: EnvOptions; readonly context: CommandContext },
): Promise<Outcome<Pick<OwnVariables, 'variables'> & { readonly networks: readonly Config['network'][] }>> {
  if (options.url === undefined) {
    const entry = sandbox === undefined ? undefined : config.sandboxes[sandbox];
    return { variables: variablesOf(entry?.env), networks: networksOf(config, sandbox) };
  }
  const tokenFile = resolve(context.directory, options.tokenFile ?? config.admin.token.file);
  const asked = await askForEnvironment(sandbox ?? '', { url: options.url, tokenFile });
  if ('problem' in asked) return { ...asked, code: EXIT.failed };
  return { variables: asked.variables, networks: [asked.network] };
}

function networksOf(config: Config, sandbox: string | undefined): Config['network'][] {
  const own = sandbox === undefined ? undefined : config.sandboxes[sandbox];
  if (own !== undefined) return [own.network ?? config.network];
  return [config.network, ...Object.values(config.sandboxes).map((each) => each.network)];
}

type InsidePaths = Pick<SandboxFacts, 'ca' | 'bundle' | 'trustStore' | 'wgetrc'>;

function insidePaths(config: Config, options: EnvOptions, directory: string): InsidePaths {
  const here = publicPaths(config, directory);
  const mounted = {
    ca: posix.join(MOUNTED_AT, posix.basename(here.ca)),
    bundle: posix.join(MOUNTED_AT, posix.basename(here.bundle)),
  };
  const standard = options.docker === true ? mounted : here;
  const ca = options.ca ?? standard.ca;
  const beside = options.ca === undefined ? standard.bundle : posix.join(posix.dirname(options.ca), 'bundle.pem');
  const bundle = options.bundle ?? beside;
  const { trustStore, wgetrc } = besideBundle(bundle, options.docker === true ? 'mounted' : 'here');
  // The lines for wget hold the path of the bundle, and are written for these two only.
  return { ca, bundle, trustStore, wgetrc: bundle === standard.bundle ? wgetrc : undefined };
}

interface Written {
  readonly facts: SandboxFacts;
  readonly withToken: boolean;
  readonly directory: string;
  readonly overruled: readonly string[];
}

function notesOn(config: Config, options: EnvOptions, { facts, withToken, directory, overruled: lost }: Written): string[] {
  const folder = posix.dirname(publicPaths(config, directory).ca);
  const usesMount = options.docker === true && options.ca === undefined;
  const loopbackOnly = options.docker === true && options.proxy === undefined && isLoopback(config.listen.proxy.host);
  return [
    usesMount
      ? `mount the CA: docker run --env-file FILE -v "${folder}:${MOUNTED_AT}:ro" --add-host host.docker.internal:host-gateway IMAGE`
      : undefined,
    loopbackOnly
      ? 'listen.proxy is on loopback, which containers do not reach; listen on an address they do, or name it with --proxy'
      : undefined,
    withToken ? 'the proxy URL bears the token of the sandbox; keep it out of logs' : undefined,
    withToken ? 'Java takes no password from a system property; set a java.net.Authenticator there' : undefined,
    facts.wgetrc === undefined
      ? `wget built with GnuTLS reads no variable for its roots: have /etc/wgetrc say "ca_certificate = ${facts.bundle}"`
      : undefined,
    lost.length > 0 ? `the sandbox's own ${lost.join(', ')} would lead past the proxy and is left out` : undefined,
    'Node before 22.21 dials past the proxy, and so may any program; have the network refuse what does not go through the proxy',
  ].filter((note) => note !== undefined);
}
