// Numbers that cost next to nothing to add to: plain counts kept here, handed to prom-client only when somebody scrapes.
// prom-client builds and validates a label key at every increment; on the road of a request that is the price of the whole record.
// It must never grow without bound: each tally knows how many label sets it may hold (fault L02).
import { Histogram } from 'prom-client';
import type { Counter, HistogramConfiguration } from 'prom-client';

/** One label set with its count. */
export interface Count {
  readonly labels: Readonly<Record<string, string>>;
  value: number;
}

/** Counts by label set, found by two keys: a text that is the same object every time costs no hashing, a small number neither. */
export class Counts {
  readonly #groups = new Map<string, Map<number, Count>>();

  /** The count to add to. The two keys must be equal exactly when the labels are; `labels` is asked for only where they are new. */
  at(group: string, key: number, labels: () => Count['labels']): Count {
    let counts = this.#groups.get(group);
    if (counts === undefined) this.#groups.set(group, (counts = new Map<number, Count>()));
    let count = counts.get(key);
    if (count === undefined) counts.set(key, (count = { labels: labels(), value: 0 }));
    return count;
  }

  /** Copies every count into the metric; for its `collect`. */
  fill(metric: Counter): void {
    metric.reset();
    for (const counts of this.#groups.values()) {
      for (const { labels, value } of counts.values()) metric.inc(labels, value);
    }
  }
}

/** Keeps a label's set of values closed: the first `max` values are themselves, every later one is `_other`. */
export class ClosedLabel {
  readonly #known = new Set<string>();
  readonly #max: number;

  constructor(max: number) {
    this.#max = max;
  }

  of(value: string): string {
    if (this.#known.has(value)) return value;
    if (this.#known.size >= this.#max) return '_other';
    this.#known.add(value);
    return value;
  }
}

/** Observations of one label set, by bucket. */
class Buckets {
  readonly labels: Readonly<Record<string, string>>;
  readonly counts: number[];
  sum = 0;

  constructor(labels: Readonly<Record<string, string>>, bounds: number) {
    this.labels = labels;
    this.counts = new Array<number>(bounds + 1).fill(0);
  }
}

interface Sample {
  readonly metricName: string;
  readonly labels: Readonly<Record<string, string | number>>;
  readonly sharedLabels: Readonly<Record<string, string>>;
  readonly value: number;
}

/** A histogram of at most one label whose values are a closed set; observing is a Map lookup and two additions. */
export class TalliedHistogram extends Histogram {
  readonly #metric: { readonly name: string; readonly help: string; readonly label: string | undefined };
  readonly #bounds: readonly number[];
  readonly #byValue = new Map<string, Buckets>();

  constructor(configuration: HistogramConfiguration<string> & { readonly buckets: number[] }) {
    super(configuration);
    this.#metric = { name: configuration.name, help: configuration.help, label: configuration.labelNames?.[0] };
    this.#bounds = configuration.buckets;
    if (this.#metric.label === undefined) this.#bucketsOf('');
  }

  /** Adds one observation, in seconds, to the label's value; values that are no finite number are left out. */
  record(seconds: number, labelValue = ''): void {
    if (!Number.isFinite(seconds)) return;
    const buckets = this.#bucketsOf(labelValue);
    const found = this.#bounds.findIndex((bound) => seconds <= bound);
    const at = found < 0 ? this.#bounds.length : found;
    buckets.counts[at] = (buckets.counts[at] ?? 0) + 1;
    buckets.sum += seconds;
  }

  /** What the registry asks for, answered from here in place of prom-client's own store. */
  getForPromString(): Promise<object> {
    const { name, help } = this.#metric;
    return Promise.resolve({ name, help, type: 'histogram', aggregator: 'sum', values: [...this.#samples()] });
  }

  *#samples(): Generator<Sample> {
    const { name } = this.#metric;
    for (const { labels, counts, sum } of this.#byValue.values()) {
      let total = 0;
      for (const [index, count] of counts.entries()) {
        total += count;
        yield { metricName: `${name}_bucket`, labels: { le: this.#bounds[index] ?? '+Inf' }, sharedLabels: labels, value: total };
      }
      yield { metricName: `${name}_sum`, labels: {}, sharedLabels: labels, value: sum };
      yield { metricName: `${name}_count`, labels: {}, sharedLabels: labels, value: total };
    }
  }

  #bucketsOf(value: string): Buckets {
    let buckets = this.#byValue.get(value);
    if (buckets === undefined) {
      const { label } = this.#metric;
      buckets = new Buckets(label === undefined ? {} : { [label]: value }, this.#bounds.length);
      this.#byValue.set(value, buckets);
    }
    return buckets;
  }
}
