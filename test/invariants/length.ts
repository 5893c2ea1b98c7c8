import type { Message } from '@treadle/core';

/** Four characters are taken for a token; a picture or a file counts like so many of them. */
const PICTURE = 4_000;

/** How many tokens a message is taken to have. */
export function estimateOf({ content }: Message): number {
  const characters = content.map((part): number => {
    if (part.type === 'tool-call') return part.name.length + part.arguments.length;
    if (part.type === 'tool-result') return part.content.map(lengthOf).reduce(plus, 0);
    return lengthOf(part);
  });
  return Math.ceil(characters.reduce(plus, 0) / 4);
}

function lengthOf(part: { readonly type: string; readonly text?: string }): number {
  return part.text?.length ?? PICTURE;
}

function plus(a: number, b: number): number {
  return a + b;
}

/** Up to where a conversation gives way to a summary, if the newest turns stay; undefined if that makes it no shorter. */
export function cutIn(messages: readonly Message[], given: number, keepTurns: number): number | undefined {
  const replies = messages.flatMap(({ role }, place) => (role === 'assistant' && place >= given ? place : []));
  const cut = replies.at(-keepTurns);
  return replies.length < keepTurns || cut! < given + 2 ? undefined : cut;
}
