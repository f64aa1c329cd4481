// Keeps the TLS contexts of the hosts in use: one leaf per host, minted when first asked for and again before it expires.
// Minting is synchronous, so however many handshakes ask for a new host at once, one leaf is made (fault G09).
// It must never be asked with raw client text: a Host is canonical, so case and dot variants cannot fill it.
import { createSecureContext } from 'node:tls';
import type { SecureContext } from 'node:tls';
import { LRUCache } from 'lru-cache';
import type { Host } from '../exchange/authority.ts';
import type { CertificateAuthority, Leaf } from './certificate-authority.ts';

/** What a leaf cache is made of. */
export interface LeafCacheOptions {
  readonly authority: CertificateAuthority;
  /** Hosts kept at most; the least recently used goes first */
  readonly max: number;
  /** Wall clock in `ms` since 1970; `Date.now` by default */
  readonly now?: () => number;
  /** Makes the context of a leaf; by default a plain server's with TLS 1.2 and up */
  readonly makeContext?: (leaf: Leaf) => SecureContext;
  /** Called after a leaf was minted */
  readonly onMint?: () => void;
  /** Called when a context was found */
  readonly onHit?: () => void;
}

/** Gives the TLS context to speak with, host by host. */
export interface LeafCache {
  /**
   * The context that proves to be `host`. The same object as long as its leaf is young, so that session tickets issued
   * on one connection resume on the next. Throws an AuthorityError once the CA has expired; nothing is kept then.
   */
  contextFor(host: Host): SecureContext;
  /** Hosts kept at present */
  readonly size: number;
}

interface Entry {
  readonly context: SecureContext;
  /** From then on a new leaf is minted, `ms` since 1970 */
  readonly renewAt: number;
}

/** A bounded cache of contexts for the leaves of one authority. */
export function createLeafCache(options: LeafCacheOptions): LeafCache {
  const { authority, max, now = Date.now, makeContext = serverContext, onMint, onHit } = options;
  const entries = new LRUCache<Host, Entry>({ max });

  function mint(host: Host): SecureContext {
    const leaf = authority.issue(host);
    const context = makeContext(leaf);
    entries.set(host, { context, renewAt: renewalTime(leaf.notAfter, authority.notAfter, now()) });
    onMint?.();
    return context;
  }

  return {
    contextFor(host) {
      const entry = entries.get(host);
      if (entry === undefined || now() >= entry.renewAt) return mint(host);
      onHit?.();
      return entry.context;
    },
    get size() {
      return entries.size;
    },
  };
}

function serverContext(leaf: Leaf): SecureContext {
  return createSecureContext({ key: leaf.keyPem, cert: leaf.certificatePem, minVersion: 'TLSv1.2' });
}

/** When a quarter of its life is left; at its very end where the CA ends then too, because a new leaf would live no longer. */
function renewalTime(leafEnd: Date, authorityEnd: Date, mintedAt: number): number {
  const end = leafEnd.getTime();
  return end >= authorityEnd.getTime() ? end : end - (end - mintedAt) / 4;
}
