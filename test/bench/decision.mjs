// The decision alone, on 10 rules and on 100,000: it walks the labels of the host, so both must cost the same.
// Prints nanoseconds a decision and their ratio; run by `npm run bench`, or alone after a build.
import { buildPolicy } from '../../dist/policy/policy-index.js';
import { parseDomain } from '../../dist/policy/host-pattern.js';
import { decide } from '../../dist/policy/decide.js';
import { facesOf } from '../../dist/network/address-class.js';
import { NO_RANGES } from '../../dist/network/address-ranges.js';

const rule = {
  ports: undefined,
  methods: undefined,
  paths: undefined,
  opened: NO_RANGES,
  passthrough: false,
  monitor: false,
  injection: undefined,
};

function policyOf(size) {
  const allowlist = [];
  for (let i = 0; i < size; i += 1) {
    const domain = i % 3 === 0 ? `*.zone-${i}.example.com` : `host-${i}.example.com`;
    allowlist.push({ pattern: parseDomain(domain), rule });
  }
  return buildPolicy({ denylist: [parseDomain('*.internal.example')], allowlist, facesOf });
}

const hosts = ['host-1.example.com', 'a.b.zone-3.example.com', 'nowhere.example.org', 'x.internal.example'];
const intents = hosts.map((host) => ({
  arrival: { purpose: 'exchange', method: 'GET' },
  scheme: 'https',
  authority: { host, port: 443, address: false },
  path: '/v1/things',
  query: '',
  identity: undefined,
}));

function nanosecondsEach(policy, rounds) {
  const sandbox = { id: 'default', policy };
  const begun = process.hrtime.bigint();
  for (let i = 0; i < rounds; i += 1) decide(intents[i & 3], sandbox);
  return Number(process.hrtime.bigint() - begun) / rounds;
}

const median = (values) => values.sort((a, b) => a - b)[values.length >> 1];

/** Alternates between the two sizes, so that both meet the same machine. */
export function measureDecision({ rounds = 200_000, times = 9 } = {}) {
  const sizes = [10, 100_000];
  const policies = sizes.map(policyOf);
  const samples = sizes.map(() => []);
  for (const policy of policies) nanosecondsEach(policy, rounds);
  for (let time = 0; time < times; time += 1) policies.forEach((policy, i) => samples[i].push(nanosecondsEach(policy, rounds)));
  const [small, large] = samples.map(median);
  return { small_ns: Math.round(small), large_ns: Math.round(large), ratio: large / small };
}

if (process.argv[1] === import.meta.filename) process.stdout.write(`${JSON.stringify(measureDecision())}\n`);
