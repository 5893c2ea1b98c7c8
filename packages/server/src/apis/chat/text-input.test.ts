import type { FileBlock, Model, ModelRequest, UserMessage } from '@treadle/core';
import { beforeEach, expect, test, vi } from 'vitest';
import { textInputFor } from './text-input.ts';

const pdfPages = vi.hoisted(() => vi.fn<(request: { readonly bytes: Uint8Array }) => Promise<object>>());
vi.mock('@treadle/tools', () => ({ pdfPages }));

beforeEach(() => {
  pdfPages.mockReset();
  pdfPages.mockImplementation(async ({ bytes }: { readonly bytes: Uint8Array }) => ({
    pageCount: 1,
    pages: [`read ${Buffer.from(bytes).toString()}`],
    hasText: true,
  }));
});

function pdf(content: string): FileBlock {
  const source = { type: 'data', data: Buffer.from(content).toString('base64') } as const;
  return { type: 'file', mediaType: 'application/pdf', name: 'a.pdf', source };
}

/** What a model without files gets in a run of its own. */
async function textsIn(signal: AbortSignal, ...content: FileBlock[]): Promise<unknown[]> {
  const texts: unknown[] = [];
  const model = {
    id: 'm',
    accepts: { files: false },
    async reply({ messages }: ModelRequest) {
      for (const block of (messages[0] as UserMessage).content) texts.push('text' in block && block.text);
    },
  } as unknown as Model;
  const request = { messages: [{ role: 'user', content }] } as unknown as ModelRequest;
  await textInputFor(model, 'm')!.model.reply(request, () => {}, signal);
  return texts;
}

const live = new AbortController().signal;

test('the text of a PDF is read once for all runs, also if it cannot be read', async () => {
  const expected = '\n\nAttachment "a.pdf", as text:\nread one';
  for (let run = 0; run < 3; run++) expect(await textsIn(live, pdf('one'))).toEqual([expected]);
  expect(pdfPages).toHaveBeenCalledTimes(1);
  pdfPages.mockRejectedValue(new Error('no PDF'));
  for (let run = 0; run < 3; run++)
    expect(await textsIn(live, pdf('two'))).toEqual([expect.stringMatching('cannot read')]);
  expect(pdfPages).toHaveBeenCalledTimes(2);
});

test('a PDF whose run was cancelled is read again', async () => {
  const cancelled = new AbortController();
  pdfPages.mockImplementationOnce(async () => {
    cancelled.abort();
    throw new Error('aborted');
  });
  await textsIn(cancelled.signal, pdf('three'));
  expect(await textsIn(live, pdf('three'))).toEqual([expect.stringContaining('read three')]);
});

test('the texts that were used last are kept, up to a total length', async () => {
  const long = 'x'.repeat(500_000);
  pdfPages.mockImplementation(async () => ({ pageCount: 1, pages: [long], hasText: true }));
  await textsIn(live, pdf('kept'));
  for (let count = 0; count < 20; count++) {
    await textsIn(live, pdf(`other ${count}`));
    await textsIn(live, pdf('kept'));
  }
  expect(pdfPages).toHaveBeenCalledTimes(21);
  await textsIn(live, pdf('other 0'));
  expect(pdfPages).toHaveBeenCalledTimes(22);
});
