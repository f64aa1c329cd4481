// Every dialect that there is, by name. A literal table and nothing else.
// Who needs one by name takes it from here; nobody else may know the three modules.
import { desktop } from './desktop.ts';
import type { Dialect } from './dialect.ts';
import { managed } from './managed.ts';
import { settings } from './settings.ts';
import type { DialectName } from './words.ts';

/** The dialects, in the order in which a file is asked whose it is. */
export const dialects: Readonly<Record<DialectName, Dialect>> = { managed, desktop, settings };
