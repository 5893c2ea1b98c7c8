import { expect, test } from 'vitest';
import { newMetrics } from './metrics.ts';

test('writes counters, gauges and histograms as Prometheus reads them', () => {
  const metrics = newMetrics();
  const calls = metrics.counter('calls_total', 'Calls.', ['tool', 'status']);
  calls.add(1, ['read', 'ok']);
  calls.add(2, ['read', 'ok']);
  calls.add(1, ['a "b"\\\n', 'ok']);
  metrics.counter('starts_total', 'A line\nbreak.');
  metrics.gauge('runs', 'Runs.', () => 3);
  metrics.gauge('delay', 'Delay.', () => ({ '0.5': 0.25, '0.99': Infinity }), 'quantile');
  metrics.countedElsewhere('cpu_total', 'CPU.', () => 1.5);
  const seconds = metrics.histogram('seconds', 'Time.', [0.1, 1], ['route']);
  for (const value of [0.05, 0.1, 0.5, 7]) seconds.observe(value, ['/a']);
  metrics.histogram('bytes', 'Size.', [1]);
  expect(metrics.text()).toBe(`# HELP calls_total Calls.
# TYPE calls_total counter
calls_total{tool="read",status="ok"} 3
calls_total{tool="a \\"b\\"\\\\\\n",status="ok"} 1
# HELP starts_total A line\\nbreak.
# TYPE starts_total counter
starts_total 0
# HELP runs Runs.
# TYPE runs gauge
runs 3
# HELP delay Delay.
# TYPE delay gauge
delay{quantile="0.5"} 0.25
delay{quantile="0.99"} +Inf
# HELP cpu_total CPU.
# TYPE cpu_total counter
cpu_total 1.5
# HELP seconds Time.
# TYPE seconds histogram
seconds_bucket{route="/a",le="0.1"} 2
seconds_bucket{route="/a",le="1"} 3
seconds_bucket{route="/a",le="+Inf"} 4
seconds_sum{route="/a"} 7.65
seconds_count{route="/a"} 4
# HELP bytes Size.
# TYPE bytes histogram
bytes_bucket{le="1"} 0
bytes_bucket{le="+Inf"} 0
bytes_sum 0
bytes_count 0
`);
});

test('counts further label values together when a metric has 500 series', () => {
  const metrics = newMetrics();
  const calls = metrics.counter('calls_total', 'Calls.', ['name', 'status']);
  for (let index = 0; index < 2_000; index++) calls.add(1, [`n${index}`, 'ok']);
  const lines = metrics.text().split('\n').slice(2, -1);
  expect(lines).toHaveLength(500);
  expect(lines.at(-1)).toBe('calls_total{name="other",status="other"} 1501');
});

test('rejects a name that is used, and one that Prometheus does not accept', () => {
  const metrics = newMetrics();
  metrics.counter('calls_total', 'Calls.');
  expect(() => metrics.gauge('calls_total', 'Calls.', () => 1)).toThrow('There is already a metric calls_total.');
  expect(() => metrics.counter('calls-total', 'Calls.')).toThrow('"calls-total" is not a valid name of a metric.');
});
