import { useComputed, useSignal, type ReadonlySignal } from '@preact/signals';
import type { Token, Tokens } from 'marked';
import type { JSX } from 'preact';
import { memo } from 'preact/compat';
import { useEffect, useRef } from 'preact/hooks';
import { CopyButton } from '../shell/copy.tsx';
import { blockReader } from './blocks.ts';
import { blockMarkup, type Markup } from './sanitize.ts';

/** A text in Markdown that may still grow. */
export function Markdown({ text }: { readonly text: ReadonlySignal<string> }): JSX.Element {
  const reader = useRef<ReturnType<typeof blockReader>>(undefined);
  reader.current ??= blockReader();
  const blocks = useComputed(() => reader.current!(text.value));
  const { groups, tail } = blocks.value;
  return (
    <div class="markdown">
      {groups.map((group, index) => (
        <Group key={index} blocks={group} />
      ))}
      {tail.map((token, index) => (
        <Block key={`${groups.length} ${index}`} token={token} isLast={index === tail.length - 1} />
      ))}
    </div>
  );
}

const Group = memo(({ blocks }: { readonly blocks: readonly Token[] }): JSX.Element => (
  <div class="group">
    {blocks.map((token, index) => (
      <Block key={index} token={token} isLast={false} />
    ))}
  </div>
));

/** A block is rendered again only if it has changed. */
const Block = memo(
  ({ token, isLast }: { readonly token: Token; readonly isLast: boolean }): JSX.Element => {
    if (token.type === 'code') {
      const { text, lang = '' } = token as Tokens.Code;
      return <CodeBlock code={text} language={lang.split(/\s/, 1)[0]!} isComplete={!isLast || isClosed(token)} />;
    }
    const html = { __html: blockMarkup(token) };
    if (token.type === 'table') {
      return <div class="table-scroll" tabIndex={0} role="group" aria-label="Table" dangerouslySetInnerHTML={html} />;
    }
    return <div dangerouslySetInnerHTML={html} />;
  },
  (a, b) => a.token === b.token && (a.token.type !== 'code' || a.isLast === b.isLast),
);

/** Whether the fence at the end is there. */
function isClosed({ raw }: Token): boolean {
  return /\n[ \t]*(`{3,}|~{3,})[ \t]*\n*$/.test(raw);
}

interface CodeBlockProps {
  readonly code: string;
  readonly language: string;
  readonly isComplete: boolean;
}

export function CodeBlock({ code, language, isComplete }: CodeBlockProps): JSX.Element {
  const coloured = useSignal<{ readonly code: string; readonly html: Markup } | undefined>(undefined);
  useEffect(() => {
    if (!isComplete || language === '') return;
    import('./highlight.ts').then(
      ({ highlighted }) => {
        const html = highlighted(code, language.toLowerCase());
        if (html !== undefined) coloured.value = { code, html };
      },
      // Without colours.
      () => {},
    );
  }, [code, language, isComplete, coloured]);
  const shown = coloured.value?.code === code ? coloured.value.html : undefined;
  return (
    <figure class="code">
      <figcaption>
        <span>{language || 'text'}</span>
        <CopyButton text={() => code} label="Copy the code" />
      </figcaption>
      {shown === undefined ? (
        <pre tabIndex={0}>
          <code>{code}</code>
        </pre>
      ) : (
        <pre key="coloured" tabIndex={0}>
          <code dangerouslySetInnerHTML={{ __html: shown }} />
        </pre>
      )}
    </figure>
  );
}
