// How the store fails: three kinds, each with its own fate in the rooms that use it.
// A message names the store, a kind and an id; it must never quote a value, a key, or the user and password of a URI,
// and no error of a driver goes along as a cause, since those quote what they were given.

/** Somebody else was quicker: the record is not at the version that the write was made for. To be read anew and tried again. */
export class StoreConflict extends Error {
  /** The version that is there; `undefined` where there is no record */
  readonly version: number | undefined;

  constructor(place: RecordPlace, version: number | undefined) {
    super(
      version === undefined
        ? `${place.kind} "${place.id}" does not exist any more; read it anew`
        : `${place.kind} "${place.id}" was changed by somebody else (it is at version ${version}); read it anew and repeat the change`,
    );
    this.name = 'StoreConflict';
    this.version = version;
  }
}

/** The engine gave no answer, or no usable one. A write may or may not have happened. To be tried again later. */
export class StoreAway extends Error {
  constructor(store: string, reason: string) {
    super(`the store at "${store}" is away: ${reason}`);
    this.name = 'StoreAway';
  }
}

/** A record, or the whole store, does not open: damaged, put there by somebody else, or sealed with a key that is not at hand. */
export class StoreBroken extends Error {
  /** The record; `undefined` where it is the whole store */
  readonly record: RecordPlace | undefined;

  constructor(message: string, record?: RecordPlace) {
    super(message);
    this.name = 'StoreBroken';
    this.record = record;
  }
}

/** Where a record lies. Both are part of what it is sealed with. */
export interface RecordPlace {
  readonly kind: string;
  readonly id: string;
}
