// The store in PostgreSQL, by Keyv's adapter: one row for each record, in a table of its own. A change is one statement with the text
// that must still be there as its condition, so that the server decides between two writers.
// It must never use the adapter's own pool: it is one for the whole process, and a lost idle connection of it would end the process.
import KeyvPostgres from '@keyv/postgres';
import pg from 'pg';
import { driverCode, networkReason, readsOver } from './engine.ts';
import type { Change, Engine } from './engine.ts';
import { CALL_MS } from './patience.ts';

const TABLE = 'sallyport_store';
const QUALIFIED = `public.${TABLE}`;
const MOST_CONNECTIONS = 4;
const CONNECTION_GONE = /^(?:57P0\d|08\w{3})$/;

// The row is locked by the guard until the statement ends: a rotation that begins meanwhile waits for it, and sees what it wrote.
const GUARD = `WITH guard AS (SELECT 1 FROM ${QUALIFIED} WHERE key = $4 AND value = $5 FOR SHARE) `;
const GUARDED = 'EXISTS (SELECT 1 FROM guard)';

// The clock is the server's; the row is `<end of the claim> <token>`.
const CLAIM = `INSERT INTO ${QUALIFIED} AS held (key, value)
  VALUES ($1, ((extract(epoch FROM clock_timestamp()) * 1000)::bigint + $2::bigint) || ' ' || $3::text)
  ON CONFLICT (key) DO UPDATE SET value = excluded.value
  WHERE split_part(held.value, ' ', 1)::bigint <= extract(epoch FROM clock_timestamp()) * 1000
  RETURNING key`;

/** Gives an engine at once; the first call connects, and makes the table where it is missing. */
export function openPostgres(uri: string, place: string): Engine {
  const pool = new pg.Pool({
    connectionString: uri,
    max: MOST_CONNECTIONS,
    // later than the call that waits, which has better words for it
    connectionTimeoutMillis: CALL_MS + 500,
    query_timeout: CALL_MS + 500,
    idleTimeoutMillis: 30_000,
    keepAlive: true,
    application_name: 'sallyport',
  });
  // an idle connection was lost: the next call makes another
  pool.on('error', () => undefined);
  const query = async (sql: string, values: unknown[] = []): Promise<{ key: string; value: string }[]> => {
    try {
      return (await pool.query<{ key: string; value: string }>(sql, values)).rows;
    } catch (error) {
      if (driverCode(error) !== '42P01') throw error;
      await makeTable(pool);
      return (await pool.query<{ key: string; value: string }>(sql, values)).rows;
    }
  };
  const read = readsOver(adapterOver(query));
  return {
    place,
    read,
    swap: async (change) => {
      const { sql, values } = swapStatement(change);
      return (await query(sql, values)).length === 1;
    },
    range: async ({ prefix, after, limit }) => {
      const rows = await query(
        `SELECT key, value FROM ${QUALIFIED} WHERE key COLLATE "C" > $1 AND starts_with(key, $2) ORDER BY key COLLATE "C" LIMIT $3`,
        [after ?? prefix, prefix, limit],
      );
      return rows.map(({ key, value }) => ({ key, text: value }));
    },
    claim: async (name, { token, ttlMs }) => (await query(CLAIM, [`lock:${name}`, Math.ceil(ttlMs), token])).length === 1,
    release: async (name, token) => {
      await query(`DELETE FROM ${QUALIFIED} WHERE key = $1 AND split_part(value, ' ', 2) = $2`, [`lock:${name}`, token]);
    },
    // a query without an answer gives up its connection by itself
    silent: () => undefined,
    reason: postgresReason,
    close: () => pool.end(),
  };
}

/** The adapter on a pool of ours. It connects in its constructor, so that the query must be there before it. */
function adapterOver(query: (sql: string, values?: unknown[]) => Promise<unknown[]>): KeyvPostgres {
  class OnOurPool extends KeyvPostgres {
    override connect(): Promise<(sql: string, values?: unknown[]) => Promise<unknown[]>> {
      // The table is made by the calls that miss it: what fails here is never tried again by the adapter.
      return Promise.resolve((sql, values) => (sql.startsWith('CREATE') ? Promise.resolve([]) : query(sql, values)));
    }

    override disconnect(): Promise<void> {
      return Promise.resolve();
    }
  }
  return new OnOurPool({ table: TABLE });
}

async function makeTable(pool: pg.Pool): Promise<void> {
  try {
    await pool.query(`CREATE TABLE IF NOT EXISTS ${QUALIFIED} (key VARCHAR(255) PRIMARY KEY, value TEXT NOT NULL)`);
  } catch (error) {
    // two that make it at once: for one of them it is there by now
    if (!['23505', '42P07'].includes(driverCode(error))) throw error;
  }
}

function swapStatement({ key, before, after, guard }: Change): { readonly sql: string; readonly values: unknown[] } {
  const head = guard === undefined ? '' : GUARD;
  const condition = guard === undefined ? 'true' : GUARDED;
  // every statement uses all its parameters: PostgreSQL cannot tell the type of one that it never meets
  const values = [key, before ?? '', after ?? '', ...(guard === undefined ? [] : [guard.key, guard.text])];
  const met = '$2::text IS NOT NULL AND $3::text IS NOT NULL';
  if (before === undefined) {
    const insert = `INSERT INTO ${QUALIFIED} (key, value) SELECT $1::text, $3::text WHERE ${met} AND ${condition}`;
    return { sql: `${head}${insert} ON CONFLICT (key) DO NOTHING RETURNING key`, values };
  }
  const where = `WHERE key = $1 AND value = $2 AND ${met} AND ${condition} RETURNING key`;
  if (after === undefined) return { sql: `${head}DELETE FROM ${QUALIFIED} ${where}`, values };
  return { sql: `${head}UPDATE ${QUALIFIED} SET value = $3 ${where}`, values };
}

function postgresReason(error: unknown): string {
  const code = driverCode(error);
  if (CONNECTION_GONE.test(code)) return `it is stopping or starting, or the connection was lost (${code})`;
  switch (code) {
    case '28P01':
    case '28000':
      return `it refuses the user or the password (${code}); correct store.uri`;
    case '3D000':
      return 'the database does not exist; make it or correct store.uri';
    case '42501':
      return `the user may not use the table "${TABLE}"; grant CREATE on schema public, or make the table and grant SELECT, INSERT, UPDATE and DELETE`;
    case '25006':
      return 'it takes no writes; name the primary in store.uri';
    case '53100':
      return 'its disk is full';
    case '53300':
      return 'it has too many connections; raise max_connections';
    default:
      return networkReason(code) ?? `it cannot be used (${code})`;
  }
}
