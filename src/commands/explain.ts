// `explain`: would this request be let through, and why? Judged by the config at hand, or asked of the running proxy.
// It must never send the request, resolve the name, or show a value: only names, ids and reasons.
import { resolve } from 'node:path';
import { listenersOf } from '../config/listeners.ts';
import { loadConfig } from '../config/load.ts';
import type { Config } from '../config/schema.ts';
import { showWire } from '../foundation/visible-text.ts';
import { createFindRoute } from '../network/find-route.ts';
import type { FindRoute } from '../network/find-route.ts';
import { createGuard } from '../network/guard.ts';
import { explain as judge, NO_RESOLVER } from '../explain.ts';
import type { Explanation, Question } from '../explain.ts';
import { askAdmin } from './ask-admin.ts';
import { complainOfConfig, configPath, readConfig } from './context.ts';
import type { CommandContext, ConfigOption } from './context.ts';
import { EXIT } from './exit-codes.ts';
import type { ExitCode } from './exit-codes.ts';

/** Arguments and options of `explain`. */
export interface ExplainOptions extends ConfigOption {
  readonly method: string;
  readonly target: string;
  readonly sandbox?: string | undefined;
  /** URL of the admin listener; left out, the config is judged by itself */
  readonly url?: string | undefined;
  /** File of the admin token; left out, the one that the config names */
  readonly tokenFile?: string | undefined;
  readonly json?: boolean | undefined;
}

/** What a proxy answers, which may be an older one. */
type Answer = Partial<Explanation> & Pick<Explanation, 'decision'>;

/** Says what the door would do. 0 where it lets pass, 3 where it refuses. */
export async function explain(options: ExplainOptions, context: CommandContext): Promise<ExitCode> {
  const { voice } = context;
  if (!/^https?:\/\//i.test(options.target)) {
    voice.complain(
      `"${showWire(options.target, 200)}" is no http or https URL; write it whole, as in "https://api.github.com/user"`,
    );
    return EXIT.usage;
  }
  const question: Question = { method: options.method, url: options.target, sandbox: options.sandbox };
  const answer =
    options.url === undefined
      ? await judgeByConfig(question, options, context)
      : await ask(options.url, question, options, context);
  if (typeof answer === 'number') return answer;
  if (options.json === true || !voice.onTerminal) voice.json(answer);
  else voice.table(rowsOf(question, answer));
  return answer.decision === 'refuse' ? EXIT.refused : EXIT.ok;
}

async function judgeByConfig(question: Question, options: ExplainOptions, context: CommandContext): Promise<Answer | ExitCode> {
  const { voice, env, directory } = context;
  const file = configPath(options, env);
  const loaded = await loadConfig(resolve(directory, file), { env, baseDirectory: directory });
  if ('problems' in loaded) return complainOfConfig(voice, loaded.problems, file);
  const { snapshot, config } = loaded.compiled;
  const explanation = await judge(question, { snapshot, findRoute: findRouteFor(config) });
  if (explanation.reason === 'credential_unavailable')
    voice.say('judged by the variables and files of this shell; --url asks the running proxy, which may have others');
  return explanation;
}

/** The guard of a proxy that runs here by this config. Its resolver is never asked. */
function findRouteFor(config: Config): FindRoute {
  const listeners = listenersOf(config).map(({ host, port }) => ({ address: host, port }));
  const guard = createGuard({ listeners: () => listeners });
  return createFindRoute({ guard, resolver: NO_RESOLVER, warm: () => false });
}

async function ask(
  url: string,
  question: Question,
  options: ExplainOptions,
  context: CommandContext,
): Promise<Answer | ExitCode> {
  const { voice, env, directory } = context;
  let tokenFile = options.tokenFile;
  if (tokenFile === undefined) {
    const file = configPath(options, env);
    const parsed = await readConfig(file, directory);
    if ('problems' in parsed) return complainOfConfig(voice, parsed.problems, file);
    tokenFile = parsed.config.admin.token.file;
  }
  const answered = await askAdmin({ url, path: '/v1/explain', tokenFile: resolve(directory, tokenFile), body: question });
  if ('problem' in answered) {
    voice.complain(answered.problem);
    return EXIT.failed;
  }
  if (isAnswer(answered.body)) return answered.body;
  voice.complain(`"${url}" answered with something that is no explanation; is it the admin listener?`);
  return EXIT.failed;
}

function isAnswer(body: unknown): body is Answer {
  if (typeof body !== 'object' || body === null || !('decision' in body)) return false;
  return body.decision === 'allow' || body.decision === 'refuse' || body.decision === 'would_refuse';
}

function rowsOf({ method, url }: Question, answer: Answer): [string, string | { text: string; tone: 'good' | 'bad' }][] {
  const allowed = answer.decision !== 'refuse';
  const verdict = { allow: 'allowed', would_refuse: 'let through under monitor', refuse: 'refused' }[answer.decision];
  const names = answer.injects ?? answer.transform ?? [];
  const rows: [string, string | undefined][] = [
    ['reason', answer.reason ?? undefined],
    ['rule', answer.rule ?? undefined],
    ['detail', answer.detail],
    ['hint', answer.hint ?? undefined],
    ['credential', answer.credentials?.join(', ')],
    ['puts on', names.join(', ')],
    ['mode', names.length === 0 ? undefined : (answer.mode ?? undefined)],
    ['inspection', answer.passthrough === true ? 'none: the tunnel is passed through' : undefined],
  ];
  return [
    ['request', `${showWire(method, 32)} ${showWire(url, 200)}`],
    ['decision', { text: verdict, tone: allowed ? 'good' : 'bad' }],
    ...rows.flatMap(([name, text]): [string, string][] => (text === undefined || text === '' ? [] : [[name, text]])),
  ];
}
