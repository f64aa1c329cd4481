// Who is asking: Intent and registry in, Sandbox or Refusal out. Pure but for the constant-time comparison inside the registry.
// It must never answer differently for a wrong token and an unknown sandbox, and never say which it was.
import { Refusal } from '../exchange/codes.ts';
import { DEFAULT_SANDBOX } from '../exchange/snapshot.ts';
import type { SandboxRegistry } from '../exchange/snapshot.ts';
import type { Intent, Sandbox } from '../exchange/stages.ts';

/** Finds the sandbox by its token, else by the address it connects from; without `sandboxes` there is one, unnamed. */
export function identify(intent: Intent, registry: SandboxRegistry): Sandbox | Refusal {
  const { identity, arrival } = intent;
  return (
    known(registry, identity, arrival.client) ??
    new Refusal('sandbox_unauthenticated', 'the token of the sandbox is missing or wrong')
  );
}

function known(registry: SandboxRegistry, identity: string | undefined, client: string): Sandbox | undefined {
  const { required, heedsTokens = false } = registry;
  // A token that is wrong is not forgiven because nobody had to show one: it may be that of a sandbox that is no more.
  if (identity !== undefined && (required || heedsTokens)) return registry.byToken(identity);
  return required ? registry.bySource(client) : registry.byId(DEFAULT_SANDBOX);
}
