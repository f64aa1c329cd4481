import { describe, expect, it } from 'vitest';
import { parseDuration, parseSize } from '../../src/config/units.ts';

describe('parseDuration', () => {
  it.each([
    ['250ms', 250],
    ['1ms', 1],
    ['30s', 30_000],
    ['5m', 300_000],
    ['24h', 86_400_000],
  ])('reads %s', (text, ms) => {
    expect(parseDuration(text)).toEqual({ ms });
  });

  it.each([
    ['0s', '"0s" is out of range; write a duration from "1ms" to "24h"'],
    ['25h', '"25h" is out of range; write a duration from "1ms" to "24h"'],
    ['30', '"30" is not a duration; write the unit too: "30s" or "30ms"'],
    ['5 sec', '"5 sec" is not a duration; write "5s"'],
    ['5min', '"5min" is not a duration; write "5m"'],
    ['10 millis', '"10 millis" is not a duration; write "10ms"'],
    ['2 hours', '"2 hours" is not a duration; write "2h"'],
    ['3d', '"3d" is not a duration; write one of the units ms, s, m, h'],
    ['-1s', '"-1s" is not a duration; write a number and a unit, such as "30s", "5m" or "250ms"'],
    ['1.5s', '"1.5s" is not a duration; write a number and a unit, such as "30s", "5m" or "250ms"'],
    ['1e3s', '"1e3s" is not a duration; write a number and a unit, such as "30s", "5m" or "250ms"'],
  ])('refuses %s and states the right spelling', (text, problem) => {
    expect(parseDuration(text)).toEqual({ problem });
  });
});

describe('parseSize', () => {
  it.each([
    [1, 1],
    [65536, 65536],
    ['512B', 512],
    ['64KiB', 65536],
    ['1MiB', 1_048_576],
    ['1024GiB', 2 ** 40],
  ])('reads %s', (value, bytes) => {
    expect(parseSize(value)).toEqual({ bytes });
  });

  it.each([
    [0, '"0" is out of range; write a size from 1 to "1024GiB"'],
    [1.5, '"1.5" is out of range; write a size from 1 to "1024GiB"'],
    ['1025GiB', '"1025GiB" is out of range; write a size from 1 to "1024GiB"'],
    ['64KB', '"64KB" is not a size; write "64KiB"'],
    ['64k', '"64k" is not a size; write "64KiB"'],
    ['1 mb', '"1 mb" is not a size; write "1MiB"'],
    ['65536', '"65536" is not a size; write 65536'],
    ['lots', '"lots" is not a size; write a number of bytes, or one with a unit, such as "64KiB" or "1MiB"'],
  ])('refuses %s and states the right spelling', (value, problem) => {
    expect(parseSize(value)).toEqual({ problem });
  });
});
