import { describe, expect, it } from 'vitest';
import { createRequestIds } from '../../src/foundation/request-id.ts';

describe('createRequestIds', () => {
  it('gives ids of the shape of a version 4 UUID, each once', () => {
    const newId = createRequestIds();
    const ids = Array.from({ length: 10_000 }, newId);
    expect(new Set(ids).size).toBe(ids.length);
    for (const id of ids) expect(id).toMatch(/^[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-8[0-9a-f]{3}-[0-9a-f]{12}$/);
  });

  it('gives other ids in another process', () => {
    expect(createRequestIds()().slice(0, 23)).not.toBe(createRequestIds()().slice(0, 23));
  });
});
