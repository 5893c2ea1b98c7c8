import { crc32, deflateSync } from 'node:zlib';
import { tool } from '@treadle/core';
import { scriptedModel, type ScriptStep } from '@treadle/core/testing';
import type { Locator, Page } from 'playwright-core';
import { vi } from 'vitest';
import { startInProcess, type InProcessServer } from '../server/support/in-process.ts';
import { launch, openPage, type OpenOptions, type OpenPage } from './browser.ts';

/* What the tests of the chat share. A file that uses it closes the browser at its end. */

export const time = tool({ name: 'time', description: 'The time', effect: 'pure', execute: () => '12:00' });
export const pay = tool({ name: 'pay', description: 'Pays', needsApproval: true, execute: () => 'paid' });
const order = tool({
  name: 'order',
  description: 'Orders',
  execute: async (_, { ask }) => {
    const size = await ask({ prompt: 'Which size?', choices: ['S', 'L'] });
    return `ordered ${String(size)} ${String(await ask({ prompt: 'What colour?' }))}`;
  },
});
export const TOOLS = [time, pay, order];
export const TIME = { text: 'One moment.', calls: [{ name: 'time' }] };
export const PAY = { calls: [{ name: 'pay', arguments: { amount: 5 } }] };
export const HIDDEN = { calls: [{ name: 'pay', arguments: { to: 'a\u202Eb\u200B' } }] };
export const PNG = 'iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNkYPhfDwAChwGA60e6kgAAAABJRU5ErkJggg==';

/** A valid image of one colour: a small file, and 64 million pixels. */
export function hugePng(): string {
  const chunk = (type: string, data: Buffer): Buffer => {
    const body = Buffer.concat([Buffer.from(type), data]);
    const [length, sum] = [Buffer.alloc(4), Buffer.alloc(4)];
    length.writeUInt32BE(data.length);
    sum.writeUInt32BE(crc32(body));
    return Buffer.concat([length, body, sum]);
  };
  // 8,000 by 8,000 pixels of one bit.
  const header = Buffer.from([0, 0, 0x1f, 0x40, 0, 0, 0x1f, 0x40, 1, 0, 0, 0, 0]);
  const data = deflateSync(Buffer.alloc(1_001 * 8_000));
  const chunks = [chunk('IHDR', header), chunk('IDAT', data), chunk('IEND', Buffer.alloc(0))];
  return Buffer.concat([Buffer.from(PNG, 'base64').subarray(0, 8), ...chunks]).toString('base64');
}

export const DOT = { type: 'image', mediaType: 'image/png', source: { type: 'data', data: PNG } } as const;

export const SKILL = {
  name: '',
  description: 'A skill',
  text: 'Look closely.',
  folder: '/skills',
  files: [],
  invocation: 'both',
  execution: 'inline',
  dependencies: [],
  status: 'active',
} as const;

/** As long as the browser waits. */
export const POLL = { timeout: 20_000 };

export const launched = await launch();
// Each test has a server and a page of its own, and waits most of the time.
vi.setConfig({ maxConcurrency: 2 });

export interface ChatPage extends OpenPage {
  readonly server: InProcessServer;
  readonly message: Locator;
  send(text: string): Promise<void>;
  /** Waits until the last answer has ended. */
  ended(): Promise<void>;
}

export async function openChat(
  steps: readonly ScriptStep[],
  options: OpenOptions & { readonly server?: Parameters<typeof startInProcess>[1] } = {},
): Promise<ChatPage> {
  const { server: serverOptions, ...rest } = options;
  const tools = { tools: TOOLS, defaultTools: TOOLS.map(({ name }) => name) };
  const server = await startInProcess(scriptedModel(steps), { ...tools, ...serverOptions });
  const opened = await openPage(launched, server.url, rest);
  return withChat(opened, server);
}

function withChat(opened: OpenPage, server: InProcessServer): ChatPage {
  const { page } = opened;
  const message = page.getByRole('textbox', { name: 'Message' });
  return {
    ...opened,
    server,
    message,
    async send(text) {
      await message.fill(text);
      await message.press('Enter');
    },
    ended: () => page.locator('.answer:last-child').getByLabel('Copy the answer').waitFor(),
    async [Symbol.asyncDispose]() {
      await opened[Symbol.asyncDispose]();
      await server[Symbol.asyncDispose]();
    },
  };
}

export const button = (page: Page, name: string): Locator => page.getByRole('button', { name, exact: true });
