// Through which proxy http handlers go out where nobody names one: the variables that `sallyport env` sets, read as other tools read them.
// NO_PROXY is not among them on purpose: a hook that went around the door would be under no allowlist. It must never print a URL, which may hold a token.

/** A proxy as its URL names it. */
export interface ProxyAddress {
  readonly isTls: boolean;
  readonly hostname: string;
  readonly port: number;
  /** The Proxy-Authorization that its userinfo stands for */
  readonly authorization: string | undefined;
}

/** The first of HTTPS_PROXY, https_proxy, ALL_PROXY and all_proxy that is not empty. */
export function proxyFromEnv(env: Readonly<Record<string, string | undefined>>): string | undefined {
  for (const name of ['HTTPS_PROXY', 'https_proxy', 'ALL_PROXY', 'all_proxy']) {
    const value = env[name]?.trim();
    if (value !== undefined && value !== '') return value;
  }
  return undefined;
}

/** Reads a proxy URL; without a scheme it is http, as for curl. The problem is one line that does not repeat the URL. */
export function readProxy(text: string): ProxyAddress | { readonly problem: string } {
  const full = text.includes('://') ? text : `http://${text}`;
  if (!URL.canParse(full)) return { problem: "the proxy's URL cannot be read; write http://host:port" };
  const url = new URL(full);
  const isTls = url.protocol === 'https:';
  if (!isTls && url.protocol !== 'http:')
    return { problem: `a proxy of the kind "${url.protocol}" is not spoken; write http://host:port` };
  try {
    const userinfo = `${decodeURIComponent(url.username)}:${decodeURIComponent(url.password)}`;
    return {
      isTls,
      hostname: url.hostname.replace(/^\[|\]$/g, ''),
      port: url.port === '' ? (isTls ? 443 : 80) : Number(url.port),
      authorization: userinfo === ':' ? undefined : `Basic ${Buffer.from(userinfo).toString('base64')}`,
    };
  } catch {
    return { problem: "the userinfo of the proxy's URL is not percent-encoded rightly" };
  }
}
