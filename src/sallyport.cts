#!/usr/bin/env node
// What the command starts with: libuv's pool gets its size, then the command table is loaded. CommonJS, because Node's loader of ES
// modules has begun to use the pool before the first line of any of them runs. It must never do more than that.

/** Half of it may look names up; the other half keeps files and the audit log going while nameservers are silent. */
process.env['UV_THREADPOOL_SIZE'] ??= '64';

void import('./cli.ts');
