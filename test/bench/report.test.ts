import { expect, test } from 'vitest';
import { optionsOf } from '../../bench/options.ts';
import { markdownOf } from '../../bench/report/markdown.ts';
import { plotOf } from '../../bench/report/plot.ts';
import { rowsOf, type Results } from '../../bench/report/results.ts';
import { judge } from '../../bench/report/targets.ts';
import { textOf } from '../../bench/report/text.ts';

const cpu = (...values: number[]): { cpu: number }[] => values.map((value) => ({ cpu: value }));

const RESULTS: Results = {
  date: '2026-01-02T03:04:05.000Z',
  machine: { node: 'v24.0.0', cpu: 'a <fast> one', pinning: 'processes are not pinned' },
  repeats: 3,
  quick: false,
  versions: { ai: '7.0.0' },
  series: [
    { workload: 'W1-stream', contender: 'treadle', samples: cpu(150, 140, 190) },
    { workload: 'W1-stream', contender: 'fast-floor', samples: cpu(100, 120, 90) },
    { workload: 'W1-stream', contender: 'ai', samples: cpu(1_500, 1_600) },
    { workload: 'W1-stream', contender: 'langchain', samples: [], wrong: 'parallel: 1 of 4 calls executed (3)' },
  ],
};

test('reports medians with their ratios to the fast floor and to Treadle', () => {
  const lines = textOf(RESULTS)
    .split('\n')
    .map((line) => line.trim().split(/\s{2,}/));
  expect(lines.slice(1, 6)).toEqual([
    ['median', 'spread', 'x floor', 'x ours'],
    ['fast floor', '100', '90–120', '1.00', '0.67'],
    ['Treadle', '150', '140–190', '1.50', '1.00'],
    ['ai', '1,550', '1,500–1,600', '15.50', '10.33'],
    ['langchain', 'wrong: parallel: 1 of 4 calls executed (3)'],
  ]);
  expect(markdownOf(RESULTS)).toContain('| 150 (1.5) | 100 (1.0) | 1,550 (15.5) | wrong |');
});

test('compares targets with ratios', () => {
  const judged = judge(rowsOf(RESULTS)).map(({ verdict, is }) => [verdict, is]);
  expect(judged).toEqual([
    ['met', '1.50 x fast-floor'],
    ['met', '0.10 x'],
  ]);
  const slower = { ...RESULTS, series: [{ ...RESULTS.series[0]!, samples: cpu(170) }, RESULTS.series[1]!] };
  expect(judge(rowsOf(slower)).map(({ verdict }) => verdict)).toEqual(['close']);
});

test('compares servers with the bare proxy and with the server without a store', () => {
  const series = [
    { workload: 'S2-stream', contender: 'proxy', samples: cpu(100) },
    { workload: 'S2-stream', contender: 'treadle-server', samples: cpu(300) },
    { workload: 'S2-stream', contender: 'treadle-server-stored', samples: cpu(450) },
    { workload: 'S2-tools', contender: 'treadle-server', samples: cpu(500) },
    { workload: 'S2-tools', contender: 'treadle-server-stored', samples: cpu(750) },
  ];
  const results = { ...RESULTS, series };
  const lines = textOf(results)
    .split('\n')
    .map((line) => line.trim().split(/\s{2,}/));
  expect(lines.slice(2, 5)).toEqual([
    ['bare proxy', '100', '100–100', '1.00', '0.33'],
    ['Treadle server', '300', '300–300', '3.00', '1.00'],
    ['Treadle server, stored', '450', '450–450', '4.50', '1.50'],
  ]);
  expect(markdownOf(results)).toContain('| 100 (1.0) | 300 (3.0) | 450 (4.5) |');
  expect(markdownOf(results)).toContain('| – | 500 (1.0) | 750 (1.5) |');
});

test('plots a bar for each measured contender', () => {
  const plot = plotOf(RESULTS);
  expect(plot.match(/<rect /g)).toHaveLength(1 + 3);
  expect(plot).not.toContain('langchain');
});

test('options select rows and contenders, and unknown names are rejected', () => {
  const { workloads, contenders, repeats } = optionsOf([
    '--only',
    'W3,w1-stream',
    '--contenders',
    'treadle,ai',
    '--quick',
  ])!;
  expect(workloads.map(({ id }) => id)).toEqual(['W3a', 'W3c', 'W1-stream']);
  expect(contenders.map(({ id }) => id)).toEqual(['treadle', 'ai']);
  expect(repeats).toBe(2);
  const rows = optionsOf(['--only', 's1,S3-paced'])!;
  expect(rows.workloads.map(({ id }) => id)).toEqual(['S1-stream', 'S1-whole', 'S3-paced']);
  expect(optionsOf(['--only', 'attacks'])!.workloads.map(({ id }) => id)).toContain('attacks-pipelining');
  expect(optionsOf(['--help'])).toBeUndefined();
  expect(() => optionsOf(['--only', 'W9'])).toThrow("Unknown workload 'W9'");
  expect(() => optionsOf(['--contenders', 'nobody'])).toThrow("Unknown contender 'nobody'");
  expect(() => optionsOf(['--repeats', '0'])).toThrow('--repeats');
});
