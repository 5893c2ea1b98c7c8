import chromium from '@sparticuz/chromium';
import axe from 'axe-core';
import { chromium as playwright, type Browser, type BrowserContextOptions, type Page } from 'playwright-core';
import { expect } from 'vitest';
import { buildPage } from '../../scripts/build-page.ts';

export type Launched = { readonly browser: Browser } | { readonly error: unknown };

/** A real browser, which npm installs. Its standard arguments are for one page in a container without processes. */
export async function launchBrowser(): Promise<Launched> {
  const unwanted =
    /single-process|disable-web-security|allow-running-insecure|site-isolation|IsolateOrigins|no-zygote|in-process-gpu/;
  chromium.setGraphicsMode = false;
  try {
    const browser = await playwright.launch({
      executablePath: await unpackedBrowser(),
      // Its own renderer of graphics draws no frame for seconds, now and then.
      args: [...chromium.args.filter((arg) => !unwanted.test(arg)), '--disable-gpu'],
    });
    return { browser };
  } catch (error) {
    return { error };
  }
}

/** The program is unpacked once, into the folder for temporary files. It is too large for one in memory. */
async function unpackedBrowser(): Promise<string> {
  const { TMPDIR, TREADLE_DISK } = process.env;
  if (TREADLE_DISK === undefined) return await chromium.executablePath();
  process.env['TMPDIR'] = TREADLE_DISK;
  const program = await chromium.executablePath();
  process.env['TMPDIR'] = TMPDIR;
  return program;
}

/** Builds the page and starts the browser. Call it once for each file, and close the browser at the end. */
export async function launch(): Promise<Launched> {
  await buildPage();
  return await launchBrowser();
}

/** What to pass to `needs`. */
export function chromiumNeed(launched: Launched): [string, boolean] {
  if ('browser' in launched) return ['Chromium', true];
  return [`Chromium (${String(launched.error).split('\n', 1)[0]})`, false];
}

export interface OpenPage extends AsyncDisposable {
  readonly page: Page;
  /** Errors of the page, refused resources and violations of the security policy so far. The page must have none when it is closed. */
  readonly problems: string[];
  /** The addresses of requests to other hosts. There must be none. */
  readonly foreign: string[];
}

export interface OpenOptions extends BrowserContextOptions {
  /** Problems that the test expects. */
  readonly allow?: RegExp;
}

/** Opens an address of a server in a context of its own. */
export async function openPage(
  launched: Launched,
  url: string,
  { allow, ...options }: OpenOptions = {},
): Promise<OpenPage> {
  if (!('browser' in launched)) throw launched.error;
  const context = await launched.browser.newContext({ viewport: { width: 1180, height: 800 }, ...options });
  const page = await context.newPage();
  page.setDefaultTimeout(20_000);
  const problems: string[] = [];
  const foreign: string[] = [];
  const add = (text: string): void => void (allow?.test(text) || problems.push(text));
  page.on('pageerror', ({ message }) => add(message));
  page.on('console', (message) => void (message.type() === 'error' && add(message.text())));
  page.on('dialog', (dialog) => {
    problems.push(`dialog: ${dialog.message()}`);
    void dialog.dismiss();
  });
  page.on('request', (request) => {
    const address = new URL(request.url());
    if (/^https?:/.test(address.protocol) && !isLocal(address)) foreign.push(request.url());
  });
  await page.goto(url);
  return {
    page,
    problems,
    foreign,
    async [Symbol.asyncDispose]() {
      await context.close();
      expect(problems).toEqual([]);
      expect(foreign).toEqual([]);
    },
  };
}

function isLocal({ hostname }: URL): boolean {
  return hostname === '127.0.0.1' || hostname === 'localhost';
}

/** What axe finds in the page as it is now: `rule: element`. */
export async function axeViolations(page: Page): Promise<string[]> {
  // Not as a script element, which the security policy forbids.
  await page.evaluate(axe.source);
  return await page.evaluate(async () => {
    interface Axe {
      run(): Promise<{ violations: { id: string; nodes: { target: string[]; failureSummary: string }[] }[] }>;
    }
    const { violations } = await (globalThis as unknown as { axe: Axe }).axe.run();
    return violations.flatMap(({ id, nodes }) =>
      nodes.map(({ target, failureSummary }) => `${id}: ${target.join(' ')} ${failureSummary}`),
    );
  });
}
