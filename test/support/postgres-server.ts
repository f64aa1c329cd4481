// A PostgreSQL of one test file, from the system's package: its own port, folder and password. It refuses to run as root, so that
// root runs it as the user of the package. Where it is not installed, tests say so and skip.
import { execFileSync } from 'node:child_process';
import type { SpawnOptions } from 'node:child_process';
import { chmodSync, chownSync, existsSync, mkdtempSync, readdirSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import pg from 'pg';
import { endChild, freePort, startUntil } from './child-server.ts';

const PACKAGES = '/usr/lib/postgresql';
const found = findPrograms();

/** Why there is no PostgreSQL here; `undefined` where there is one. */
export const postgresMissing = typeof found === 'string' ? found : undefined;

/** A running PostgreSQL. */
export interface PostgresServer {
  readonly port: number;
  readonly user: string;
  readonly password: string;
  uri(database: string): string;
  /** Makes an empty database and gives its URI. */
  fresh(): Promise<string>;
  query(sql: string, database?: string): Promise<unknown[]>;
  stop(): Promise<void>;
  start(): Promise<void>;
  end(): Promise<void>;
}

/** Starts a PostgreSQL on a free port. It sorts as English does, as many do, and not by bytes. */
export async function startPostgres(): Promise<PostgresServer> {
  if (typeof found === 'string') throw new Error(found);
  const { bin, as } = found;
  const folder = mkdtempSync(join(tmpdir(), 'sallyport-postgres-'));
  const [user, password] = ['fleet', 'postgres-password'];
  writeFileSync(join(folder, 'password'), password);
  chmodSync(folder, 0o700);
  if (as !== undefined) chownSync(folder, as.uid, as.gid);
  const data = join(folder, 'data');
  const kind = ['--no-sync', '--encoding=UTF8', '--locale=C', '--locale-provider=icu', '--icu-locale=en'];
  const access = ['-U', user, '-A', 'scram-sha-256', `--pwfile=${join(folder, 'password')}`];
  if (as !== undefined) chownSync(join(folder, 'password'), as.uid, as.gid);
  execFileSync(join(bin, 'initdb'), ['-D', data, ...kind, ...access], { ...as, cwd: folder, stdio: 'pipe' });

  const port = await freePort();
  const settings = ['listen_addresses=127.0.0.1', 'unix_socket_directories=', 'fsync=off'].flatMap((each) => ['-c', each]);
  const options: SpawnOptions = { ...as, cwd: folder };
  const command = [join(bin, 'postgres'), '-D', data, '-p', String(port), ...settings];
  const start = () => startUntil(command, 'ready to accept connections', options);
  let child = await start();
  const uri = (database: string): string => `postgresql://${user}:${password}@127.0.0.1:${port}/${database}`;
  const query = async (sql: string, database = 'postgres'): Promise<unknown[]> => {
    const client = new pg.Client({ connectionString: uri(database) });
    await client.connect();
    try {
      return (await client.query<Record<string, unknown>>(sql)).rows;
    } finally {
      await client.end();
    }
  };
  let databases = 0;
  return {
    port,
    user,
    password,
    uri,
    query,
    fresh: async () => {
      databases += 1;
      await query(`CREATE DATABASE fresh_${databases}`);
      return uri(`fresh_${databases}`);
    },
    stop: () => endChild(child, 'SIGINT'),
    start: async () => {
      child = await start();
    },
    end: async () => {
      await endChild(child, 'SIGINT');
      rmSync(folder, { recursive: true, force: true });
    },
  };
}

interface Programs {
  readonly bin: string;
  readonly as: { readonly uid: number; readonly gid: number } | undefined;
}

function findPrograms(): Programs | string {
  const versions = existsSync(PACKAGES) ? readdirSync(PACKAGES).sort((a, b) => Number(b) - Number(a)) : [];
  const bin = versions.map((version) => join(PACKAGES, version, 'bin')).find((each) => existsSync(join(each, 'postgres')));
  if (bin === undefined) return 'postgresql is not installed; apt-get install postgresql';
  if (process.getuid?.() !== 0) return { bin, as: undefined };
  try {
    const idOf = (flag: string): number =>
      Number(execFileSync('id', [flag, 'postgres'], { stdio: ['ignore', 'pipe', 'ignore'] }));
    return { bin, as: { uid: idOf('-u'), gid: idOf('-g') } };
  } catch {
    return 'postgresql does not run as root, and there is no user "postgres" to run it as';
  }
}
