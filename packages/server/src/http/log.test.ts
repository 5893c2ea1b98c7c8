import { expect, test, vi } from 'vitest';
import { newLog } from './log.ts';

function written(write: (log: ReturnType<typeof newLog>) => void): string {
  const lines: string[] = [];
  write(newLog({ to: { write: (line) => void lines.push(line) } }));
  for (const line of lines) JSON.parse(line);
  return lines.join('');
}

test('writes lines of JSON with a time and the name of the level', () => {
  expect(JSON.parse(written((log) => log.info({ status: 200 }, 'request')))).toEqual({
    level: 'info',
    time: expect.stringMatching(/^\d{4}-\d\d-\d\dT/),
    status: 200,
    msg: 'request',
  });
  expect(written((log) => log.debug('not asked for'))).toBe('');
});

test('writes the time of each line to the millisecond', () => {
  vi.useFakeTimers({ toFake: ['Date'] });
  try {
    const times = [
      '2026-01-02T03:04:05.006Z',
      '2026-01-02T03:04:05.078Z',
      '2026-01-02T03:04:06.000Z',
      '1999-12-31T23:59:59.999Z',
    ];
    const lines = written((log) => {
      for (const time of times) {
        vi.setSystemTime(time);
        log.info('line');
      }
    });
    expect(
      lines
        .trim()
        .split('\n')
        .map((line) => (JSON.parse(line) as { time: string }).time),
    ).toEqual(times);
  } finally {
    vi.useRealTimers();
  }
});

test('redacts keys, headers and bodies', () => {
  const secret = 'c2VjcmV0LXZhbHVl';
  const text = written((log) => {
    log.info({ authorization: secret, request: { headers: { 'x-api-key': secret }, body: secret } }, 'fields');
    log.child({ apiKey: secret }).info({ error: Object.assign(new Error('refused'), { body: secret }) }, 'fields');
    log.info(`Incorrect API key provided: sk-proj-${secret}`);
    log.info(`sent "Authorization: Bearer ${secret}" and basic ${secret}, tk_${secret}`);
    log.info(`two lines:\nsk-${secret}\ttk_${secret}\nBearer ${secret}`);
    const error = new Error(`401: bearer ${secret}`, { cause: new Error(`key tk_${secret}`) });
    log
      .child({ requestId: 'r' })
      .error({ err: Object.assign(error, { headers: { a: secret }, rawPacket: secret }) }, 'failed');
  });
  expect(text).not.toContain(secret);
  expect(text).toContain('Incorrect API key provided: [redacted]');
  expect(text).toContain('401: bearer [redacted]');
});

test('does not redact words that only resemble keys', () => {
  expect(written((log) => log.info('task-oriented, risk-taking, bearer of news'))).toContain(
    'task-oriented, risk-taking, bearer of news',
  );
});
