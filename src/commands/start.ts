// `start`: runs the door until it is told to stop. Signals, the banner, and what a broken invariant leads to.
// It must never leave by itself while exchanges are under way, nor show a stack where one line says what to do (fault L04).
import { resolve as resolvePath } from 'node:path';
import { startApp } from '../app.ts';
import type { App } from '../app.ts';
import { listenersOf } from '../config/listeners.ts';
import { ConfigError } from '../config/live-config.ts';
import { formatPath } from '../config/problem.ts';
import type { Config } from '../config/schema.ts';
import { createLogger } from '../foundation/logger.ts';
import type { Logger } from '../foundation/logger.ts';
import { configPath, readConfig } from './context.ts';
import type { CommandContext, ConfigOption } from './context.ts';
import { formatListen } from './check.ts';
import { EXIT } from './exit-codes.ts';
import type { ExitCode } from './exit-codes.ts';
import type { Voice } from './voice.ts';

/** What the command hears of its process; `process` is one. */
export type ProcessEvents = Pick<NodeJS.EventEmitter, 'on' | 'off'>;

/** Runs until SIGTERM or SIGINT; resolves with the exit status once everything is closed. 78 for an invalid config. */
export async function start(options: ConfigOption, context: CommandContext, events: ProcessEvents = process): Promise<ExitCode> {
  const { voice, env, version } = context;
  const file = configPath(options, env);
  const parsed = await readConfig(file, context.directory);
  if ('problems' in parsed) {
    voice.complain(new ConfigError(file, parsed.problems).message);
    return EXIT.config;
  }
  const log = createLogger({ level: parsed.config.log.level });
  let app: App;
  try {
    app = await startApp({ configPath: file, env, log, version });
  } catch (error) {
    voice.complain(startTrouble(error, parsed.config));
    return error instanceof ConfigError ? EXIT.config : EXIT.failed;
  }
  const ended = untilToldToStop(app, log, events);
  announce(app, { file, voice, log, directory: context.directory });
  return ended;
}

/** One line with the remedy. What the system says of a port names the address and not the key that chose it. */
function startTrouble(error: unknown, config: Config): string {
  if (!(error instanceof Error)) return 'internal error: the start failed without a reason';
  const { syscall, code } = error as NodeJS.ErrnoException;
  // A port of UDP is bound, and nobody listens.
  if ((syscall !== 'listen' && syscall !== 'bind') || code === undefined) return error.message;
  const address = /([^ ]+:\d+)$/.exec(error.message)?.[1] ?? 'its address';
  const named = listenersOf(config).find(({ host, port }) => `${host}:${port}` === address);
  const key = named === undefined ? 'it in `listen`' : formatPath(named.path);
  return `cannot listen on "${address}" (${code}); free the port, or change ${key}`;
}

/** First signal: graceful. Second: at once. SIGHUP: reload, and open the audit log anew for log rotation. */
function untilToldToStop(app: App, log: Logger, events: ProcessEvents): Promise<ExitCode> {
  return new Promise((resolve) => {
    let stopping = false;
    const stop = (code: ExitCode): void => {
      stopping = true;
      app.stop().then(
        () => resolve(code),
        (error: unknown) => {
          log.error('the stop broke off', { cause: error });
          resolve(EXIT.failed);
        },
      );
    };
    const onSignal = (signal: string): void => {
      if (stopping) {
        log.warn('stopping at once', { signal });
        resolve(EXIT.failed);
        return;
      }
      log.info('stopping: exchanges under way are waited for; a second signal stops at once', { signal });
      stop(EXIT.ok);
    };
    // A broken invariant must not go on silently: what is under way may end, and the supervisor starts a sound process.
    const onBug = (error: unknown): void => {
      log.error('internal error: an invariant is broken; stopping', { cause: error, stack: frames(error) });
      if (!stopping) stop(EXIT.failed);
    };
    events.on('SIGTERM', onSignal);
    events.on('SIGINT', onSignal);
    events.on('SIGHUP', () => void Promise.all([app.reload(), app.reopenAudit()]));
    events.on('uncaughtException', onBug);
    events.on('unhandledRejection', onBug);
  });
}

function frames(error: unknown): string | undefined {
  return error instanceof Error ? error.stack?.split('\n').slice(1, 21).join('\n') : undefined;
}

interface Announced {
  readonly file: string;
  readonly voice: Voice;
  readonly log: Logger;
  readonly directory: string;
}

/** A banner for a person, one log line for everyone else. */
function announce(app: App, { file, voice, log, directory }: Announced): void {
  const proxy = `http://${formatListen({ host: app.proxy.address, port: app.proxy.port })}`;
  const admin = `http://${formatListen({ host: app.admin.address, port: app.admin.port })}`;
  const certificate = resolvePath(directory, app.trust.certificate);
  const led = Object.entries(app.transparent);
  if (!voice.heard) {
    const transparent = Object.fromEntries(led.map(([key, { address, port }]) => [key, formatListen({ host: address, port })]));
    log.info('listening', { proxy, ...(led.length > 0 ? { transparent } : {}), admin, ca: certificate, config: file });
    return;
  }
  voice.say('sallyport is open', 'strong');
  voice.say(`  proxy   ${proxy}`);
  for (const [key, { address, port }] of led)
    voice.say(`  ${key.padEnd(7)} ${formatListen({ host: address, port })}  (for what is led here)`);
  voice.say(`  admin   ${admin}  (/healthz /readyz /metrics, and / for the rest)`);
  voice.say(`  ca      ${certificate}`);
  voice.say(`  config  ${file}  (watched; SIGHUP reads it again)`);
  const { config } = app.live.current();
  const needsToken = Object.values(config.sandboxes).some((sandbox) => sandbox.token !== undefined);
  const through = needsToken ? proxy.replace('//', '//SANDBOX:TOKEN@') : proxy;
  const curl = `curl --proxy ${through} --cacert ${resolvePath(directory, app.trust.bundle)}`;
  const host = someAllowedHost(config.network);
  voice.say('try it: one that is allowed, one that never is', 'strong');
  if (host === undefined) voice.say('  nothing is allowed yet: name hosts in network.allowlist', 'bad');
  else voice.say(`  ${curl} https://${host}/`, 'good');
  voice.say(`  ${curl} http://169.254.169.254/`, 'quiet');
}

type Network = ReturnType<App['live']['current']>['config']['network'];

/** A host for the first line to try: the first that is named whole. */
function someAllowedHost(network: Network): string | undefined {
  const rules = typeof network === 'object' ? (network.allowlist ?? []) : [];
  for (const { domain, methods, ports } of rules) {
    if (domain.kind === 'exact' && (methods?.includes('GET') ?? true) && (ports?.includes(443) ?? true)) return domain.text;
  }
  return rules.some(({ domain }) => domain.kind === 'any') ? 'example.com' : undefined;
}
