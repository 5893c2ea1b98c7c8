import { expect, test } from 'vitest';
import { fileTools } from '../tools/file-tools.ts';
import { welcome } from './welcome.ts';

const URL = 'http://127.0.0.1:3210';

test('without keys', () => {
  const text = welcome({
    url: URL,
    models: ['demo'],
    default: 'demo',
    options: { tools: fileTools('.') },
    file: 'x/treadle.db',
  });
  expect(text.split('\n')).toEqual([
    'Models: demo (default)',
    'Tools:  read, glob, grep; for requests that ask',
    'Kept:   x/treadle.db',
    '',
    'Point any OpenAI client at http://127.0.0.1:3210/v1; any key will do. Or try:',
    `  curl ${URL}/v1/responses -H 'Content-Type: application/json' -d ` +
      `'{"model":"demo","input":"List the files","tools":[{"type":"mcp","server_label":"treadle"}]}'`,
    'Ctrl-C stops it.',
  ]);
});

test('with keys, tools for everybody, and a name that a shell would take apart', () => {
  const text = welcome({
    url: URL,
    models: ['a', "it's"],
    default: "it's",
    options: { tools: [], keys: [{ name: 'k', hash: '' }] },
    file: undefined,
  });
  expect(text.split('\n')).toEqual([
    "Models: it's (default), a",
    'Kept:   nothing; --store memory: forgets all when it stops',
    '',
    'Point any OpenAI client at http://127.0.0.1:3210/v1, with a key of yours. Or try:',
    `  curl ${URL}/v1/responses -H 'Content-Type: application/json' -H "Authorization: Bearer $TREADLE_KEY" -d ` +
      `'{"model":"it'\\''s","input":"Hello"}'`,
    'Ctrl-C stops it.',
  ]);
  const offered = { tools: fileTools('.'), defaultTools: ['read'] };
  expect(welcome({ url: URL, models: ['a'], default: 'a', options: offered, file: undefined })).toContain(
    'Tools:  read, glob, grep; every request gets read\n',
  );
});
