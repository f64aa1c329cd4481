import { Registry } from 'prom-client';
import { describe, expect, it } from 'vitest';
import { ClosedLabel, Counts, TalliedHistogram } from '../../src/record/tally.ts';

describe('Counts', () => {
  it('gives the same count for the same key and asks for labels once', () => {
    const counts = new Counts();
    let asked = 0;
    const labels = () => ({ side: String((asked += 1)) });
    counts.at('a', 1, labels).value += 1;
    counts.at('a', 1, labels).value += 1;
    expect(counts.at('a', 1, labels)).toEqual({ labels: { side: '1' }, value: 2 });
    expect(asked).toBe(1);
    expect(counts.at('a', 2, labels).value + counts.at('b', 1, labels).value).toBe(0);
  });
});

describe('ClosedLabel', () => {
  it('keeps the first values and calls every later one _other', () => {
    const label = new ClosedLabel(2);
    expect(['a', 'b', 'c', 'a', 'd'].map((value) => label.of(value))).toEqual(['a', 'b', '_other', 'a', '_other']);
  });
});

describe('TalliedHistogram', () => {
  it('puts a value on a bound into the bucket of that bound and leaves out what is no number', async () => {
    const registry = new Registry();
    const histogram = new TalliedHistogram({ name: 'h', help: 'h', buckets: [0.1, 1], registers: [registry] });
    for (const seconds of [0.1, 0.10001, 2, Number.NaN, Infinity]) histogram.record(seconds);
    expect((await registry.metrics()).trim().split('\n')).toEqual([
      '# HELP h h',
      '# TYPE h histogram',
      'h_bucket{le="0.1"} 1',
      'h_bucket{le="1"} 2',
      'h_bucket{le="+Inf"} 3',
      'h_sum 2.20001',
      'h_count 3',
    ]);
  });

  it('is readable as JSON through the registry as well', async () => {
    const registry = new Registry();
    new TalliedHistogram({ name: 'h', help: 'h', labelNames: ['p'], buckets: [1], registers: [registry] }).record(0.5, 'h2');
    const [metric] = await registry.getMetricsAsJSON();
    expect(metric?.values).toContainEqual({ metricName: 'h_count', labels: { p: 'h2' }, value: 1 });
  });
});
