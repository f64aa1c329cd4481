// The store in Redis, by Keyv's adapter: one string for each record, and one sorted set that lists them. Changes are scripts, which
// Redis runs whole. All keys share a hash tag, so that they lie together where Redis is a cluster behind one address.
// It must never queue a call for a server that is away: a call fails at once, and the connection comes back by itself.
import KeyvRedis, { createClient } from '@keyv/redis';
import { driverCode, networkReason, readsOver } from './engine.ts';
import type { Change, Engine, Range } from './engine.ts';
import { CALL_MS } from './patience.ts';

const PREFIX = '{sallyport}:';
const INDEX = `${PREFIX}index`;
const LONGEST_PAUSE_MS = 2_000;

// KEYS: the text, the guard, the index. ARGV: before, after ('' for none, as no text is empty), guard ('' for none), name in the index
const SWAP = `
if ARGV[3] ~= '' and redis.call('GET', KEYS[2]) ~= ARGV[3] then return 0 end
if (redis.call('GET', KEYS[1]) or '') ~= ARGV[1] then return 0 end
if ARGV[2] == '' then
  redis.call('DEL', KEYS[1])
  redis.call('ZREM', KEYS[3], ARGV[4])
else
  redis.call('SET', KEYS[1], ARGV[2])
  redis.call('ZADD', KEYS[3], 0, ARGV[4])
end
return 1`;

const RELEASE = `if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('DEL', KEYS[1]) end return 0`;

/** Begins to connect, and returns once it is connected or one call's time has passed: a server that is away comes back by itself. */
export async function openRedis(uri: string, place: string): Promise<Engine> {
  let trouble: unknown;
  const client = createClient({
    url: uri,
    disableOfflineQueue: true,
    name: 'sallyport',
    socket: {
      connectTimeout: CALL_MS,
      // a server that takes the connection and says nothing; the store asks more often than this
      socketTimeout: 5 * CALL_MS,
      reconnectStrategy: (attempt: number) => Math.min(50 * 2 ** attempt, LONGEST_PAUSE_MS) * (0.75 + Math.random() / 2),
    },
  });
  // the calls that suffer from it reject; this is for the words
  client.on('error', (error: unknown) => (trouble = error));
  client.on('ready', () => (trouble = undefined));
  const adapter = new KeyvRedis<string>(client, { throwOnErrors: true });
  const read = readsOver(adapter);
  const connect = (): Promise<unknown> => client.connect().catch(() => undefined);
  // The first error tells as much as waiting would: the client goes on trying, and the first call asks again.
  await withinCall(Promise.race([connect(), new Promise((resolve) => client.once('error', resolve))]));

  const command = (...words: string[]): Promise<unknown> => client.sendCommand(words);
  return {
    place,
    read: (key) => read(PREFIX + key),
    swap: async (change) => (await command('EVAL', SWAP, '3', ...swapWords(change))) === 1,
    range: async (range) => {
      const names = (await command('ZRANGEBYLEX', INDEX, ...rangeWords(range))) as string[];
      if (names.length === 0) return [];
      const texts = await adapter.getMany<string>(names.map((name) => PREFIX + name));
      // one that was deleted between the two calls is left out
      return names.flatMap((key, index) => (typeof texts[index] === 'string' ? [{ key, text: texts[index] }] : []));
    },
    claim: async (name, { token, ttlMs }) =>
      (await command('SET', `${PREFIX}lock:${name}`, token, 'NX', 'PX', String(ttlMs))) === 'OK',
    release: async (name, token) => {
      await command('EVAL', RELEASE, '1', `${PREFIX}lock:${name}`, token);
    },
    silent: () => {
      // One that is connecting is bounded by the timeouts above; one that was connected and is silent would be waited for.
      if (!client.isReady) return;
      client.destroy();
      void connect();
    },
    reason: (error) => redisReason(client.isReady ? error : (trouble ?? error)),
    close: async () => {
      if (client.isReady) await withinCall(client.close());
      if (client.isOpen) client.destroy();
    },
  };
}

function swapWords({ key, before, after, guard }: Change): string[] {
  return [PREFIX + key, PREFIX + (guard?.key ?? key), INDEX, before ?? '', after ?? '', guard?.text ?? '', key];
}

function rangeWords({ prefix, after, limit }: Range): string[] {
  // a prefix ends in a character of ASCII, so the next one closes the range of all keys that begin with it
  const end = prefix.slice(0, -1) + String.fromCharCode(prefix.charCodeAt(prefix.length - 1) + 1);
  return [after === undefined ? `[${prefix}` : `(${after}`, `(${end}`, 'LIMIT', '0', String(limit)];
}

/** Redis says what is wrong in the first word of a reply; the rest may quote what it was sent. */
function redisReason(error: unknown): string {
  const code = driverCode(error);
  const word = error instanceof Error ? (/^[A-Z]{3,20}(?= )/.exec(error.message)?.[0] ?? '') : '';
  switch (word) {
    case 'WRONGPASS':
    case 'NOAUTH':
      return 'it refuses the user or the password; correct store.uri';
    case 'NOPERM':
      return 'the user may not do this; grant it GET, SET, DEL, MGET, EVAL, ZADD, ZREM and ZRANGEBYLEX on {sallyport}:*';
    case 'READONLY':
      return 'it is a replica and takes no writes; name the primary in store.uri';
    case 'OOM':
      return 'it is out of memory; raise maxmemory';
    case '':
      return networkReason(code) ?? `it cannot be used (${code})`;
    default:
      return `it answers ${word}`;
  }
}

async function withinCall(work: Promise<unknown>): Promise<void> {
  let timer: NodeJS.Timeout | undefined;
  const end = new Promise<void>((resolve) => (timer = setTimeout(resolve, CALL_MS)));
  await Promise.race([work, end]);
  clearTimeout(timer);
}
