// Which variables a command gets. Two measures: `clean`, a short list, and `inherited`, what the runner has itself.
// In both of them it must never hand on a variable that holds a secret of ours: SALLYPORT_*, and proxy URLs with a token in them (fault M18).

/** Variables as `process.env` has them. */
export type Variables = Readonly<Record<string, string | undefined>>;

/** Names that a clean environment keeps, beside `LC_*` and the proxy variables. */
const CLEAN = new Set([
  'PATH',
  'HOME',
  'USER',
  'LOGNAME',
  'SHELL',
  'LANG',
  'TZ',
  'TMPDIR',
  'TERM',
  'SSL_CERT_FILE',
  'SSL_CERT_DIR',
  'NODE_EXTRA_CA_CERTS',
  'REQUESTS_CA_BUNDLE',
  'CURL_CA_BUNDLE',
  'GIT_SSL_CAINFO',
]);

const CLEAN_PROXY = /^(?:(?:http|https|all|no)_proxy|(?:HTTP|HTTPS|ALL|NO)_PROXY)$/;
/** Tools have proxy variables of their own, as npm_config_https_proxy. */
const ANY_PROXY = /proxy$/i;
const OURS = /^SALLYPORT_/i;

/** How a command's environment is made. */
export interface EnvironmentOptions {
  readonly kind: 'clean' | 'inherited';
  /** Names that are kept beside the clean ones */
  readonly pass: readonly string[];
  readonly actionId: string;
  readonly traceId: string | undefined;
  /** What the dialect adds */
  readonly more: Readonly<Record<string, string>>;
}

/**
 * The variables of one command. Neither `pass` nor `more` lifts the bans: of SALLYPORT_* it gets SALLYPORT_ACTION_ID and SALLYPORT_TRACE_ID alone,
 * and a proxy variable with userinfo is left out, not rewritten, so that nobody takes it for one that works.
 */
export function commandEnvironment(from: Variables, options: EnvironmentOptions): Record<string, string> {
  const asked = new Set(options.pass);
  const kept = (name: string): boolean => options.kind === 'inherited' || asked.has(name) || isClean(name);
  const env: Record<string, string> = {};
  for (const [name, value] of Object.entries(from)) {
    if (value !== undefined && kept(name) && !isOurs(name, value)) env[name] = value;
  }
  for (const [name, value] of Object.entries(options.more)) {
    if (!isOurs(name, value)) env[name] = value;
  }
  env['SALLYPORT_ACTION_ID'] = options.actionId;
  if (options.traceId !== undefined) env['SALLYPORT_TRACE_ID'] = options.traceId;
  return env;
}

/** Whether a variable holds, or may hold, a secret of ours that no hook is given. */
export function isOurs(name: string, value: string): boolean {
  // Any @ in it: a URL whose userinfo cannot be told from the rest counts as one that has some.
  return OURS.test(name) || (ANY_PROXY.test(name) && value.includes('@'));
}

function isClean(name: string): boolean {
  return CLEAN.has(name) || name.startsWith('LC_') || CLEAN_PROXY.test(name);
}
