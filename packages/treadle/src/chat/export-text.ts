import { textOf, type AssistantPart, type Message } from '@treadle/core';

/** A conversation as Markdown: what was said, and each call with its result. */
export function conversationMarkdown(messages: readonly Message[], title: string = 'Conversation'): string {
  return `${[`# ${title}`, ...messages.flatMap(messageBlocks)].join('\n\n')}\n`;
}

function messageBlocks(message: Message): readonly string[] {
  switch (message.role) {
    case 'user': {
      const others = message.content.filter(({ type }) => type !== 'text').map(({ type }) => `[${type}]`);
      return ['## You', [textOf(message.content), ...others].join('\n\n')];
    }
    case 'assistant': {
      const blocks = message.content.flatMap(partBlocks);
      return blocks.length === 0 ? [] : ['## Model', ...blocks];
    }
    case 'tool':
      return message.content.map(({ name, content, isError }) => {
        return `Result of \`${name}\`${isError ? ' (an error)' : ''}:\n\n${fenced(textOf(content))}`;
      });
    default:
      return message satisfies never;
  }
}

function partBlocks(part: AssistantPart): readonly string[] {
  if (part.type === 'text') return part.text === '' ? [] : [part.text];
  if (part.type === 'tool-call') return [`Call of \`${part.name}\`:\n\n${fenced(part.arguments, 'json')}`];
  return [];
}

/** A block of code that the text cannot end. */
function fenced(text: string, language = ''): string {
  const ticks = Math.max(2, ...[...text.matchAll(/`+/g)].map(([run]) => run.length)) + 1;
  const fence = '`'.repeat(ticks);
  return `${fence}${language}\n${text.replace(/\n$/, '')}\n${fence}`;
}
