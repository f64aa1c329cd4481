// The variables that a sandbox was given of its own: those of the config's `sandboxes`, or those of an environment that the running proxy keeps.
// One that stands for a credential is its placeholder, which the door swaps; the value of a credential is never known here.
import { readVariables } from '../config/environment-body.ts';
import { networkSchema } from '../config/rule-schema.ts';
import type { Network } from '../config/rule-schema.ts';
import { placeholderFor } from '../credentials/placeholder.ts';
import { askAdmin } from './ask-admin.ts';

/** What a sandbox was given. */
export interface OwnVariables {
  readonly variables: ReadonlyMap<string, string>;
  readonly network: Network | undefined;
}

/** Where the running proxy is asked. */
export interface AdminPlace {
  readonly url: string;
  readonly tokenFile: string;
}

/** The variables of an `env`, placeholders in the place of credentials. */
export function variablesOf(
  env: Readonly<Record<string, string | { readonly value: string } | { readonly credential: string }>> = {},
): ReadonlyMap<string, string> {
  const text = (value: string | { readonly value: string } | { readonly credential: string }): string => {
    if (typeof value === 'string') return value;
    return 'value' in value ? value.value : placeholderFor(value.credential);
  };
  return new Map(Object.entries(env).map(([name, value]) => [name, text(value)]));
}

/** The variables of an environment of the running proxy; or one line that says why there are none, with the remedy. Never rejects. */
export async function askForEnvironment(id: string, admin: AdminPlace): Promise<OwnVariables | { readonly problem: string }> {
  const answered = await askAdmin({ ...admin, method: 'GET', path: `/v1beta/environments/${encodeURIComponent(id)}` });
  if ('problem' in answered) return answered;
  const { env, network }: { readonly env?: unknown; readonly network?: unknown } = Object(answered.body) as object;
  const read = readVariables(env);
  if ('problem' in read) return { problem: `"${admin.url}" answered with something that is no environment` };
  const ruled = networkSchema.safeParse(network);
  return { variables: variablesOf(read.env), network: ruled.success ? ruled.data : undefined };
}

/** Names of its own that are the proxy's, which come first: a sandbox that is led elsewhere by them reaches nothing. */
export function overruled(own: ReadonlyMap<string, string>, ofProxy: ReadonlyMap<string, string>): string[] {
  return [...ofProxy.keys()].filter((name) => own.has(name));
}
