// Which engine a store.uri means, and its loading: an engine that is not used costs a start nothing.
// It must never quote a URI: it may hold a password.
import { fileURLToPath } from 'node:url';
import { resolve } from 'node:path';
import type { Engine } from './engine.ts';

/** What opening an engine needs to know. */
export interface EnginePlace {
  /** `file:<path>`, `redis://`, `rediss://`, `postgres://` or `postgresql://` */
  readonly uri: string;
  /** What a relative path counts from */
  readonly baseDirectory: string;
  readonly warn: (message: string) => void;
}

/**
 * Opens the engine of a URI. A file is open when this returns; a server may be away, which its calls will say.
 * Throws an Error, fit for the operator, where the URI or the file cannot be used.
 */
export async function openEngine({ uri, baseDirectory, warn }: EnginePlace): Promise<Engine> {
  if (uri.startsWith('file:')) {
    const { openEmbedded } = await import('./embedded.ts');
    return openEmbedded(filePath(uri, baseDirectory), warn);
  }
  const url = URL.canParse(uri) ? new URL(uri) : undefined;
  if (url === undefined || url.hostname === '') {
    throw new Error('store.uri cannot be read; write it as file:path, redis://host:6379 or postgresql://host:5432/database');
  }
  switch (url.protocol) {
    case 'redis:':
    case 'rediss:': {
      const { openRedis } = await import('./redis.ts');
      return openRedis(uri, placeOf(url));
    }
    case 'postgres:':
    case 'postgresql:': {
      const { openPostgres } = await import('./postgres.ts');
      return openPostgres(uri, placeOf(url));
    }
    default:
      throw new Error('store.uri names no engine; it begins with "file:", "redis://", "rediss://" or "postgresql://"');
  }
}

/** The file that a `file:` URI means. Throws where it is no path. */
export function filePath(uri: string, baseDirectory: string): string {
  const path = uri.slice('file:'.length);
  if (!path.startsWith('//')) return resolve(baseDirectory, path);
  try {
    return fileURLToPath(uri);
  } catch {
    throw new Error('store.uri is no path: write file:relative/path or file:///absolute/path');
  }
}

/** Scheme, host, port and database; what stands before the `@` and after the `?` may be secret. */
function placeOf(url: URL): string {
  return `${url.protocol}//${url.host}${url.pathname === '/' ? '' : url.pathname}`;
}
