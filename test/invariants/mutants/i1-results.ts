import type { Mutant } from '../mutate.ts';

/** I1 every call has exactly one result, in call order, before the next model turn. */
export const results: readonly Mutant[] = [
  {
    property: 'I1',
    name: 'the result of a call over the cap is dropped',
    file: 'loop/turn.ts',
    find: 'content: slots.map(({ result }) => result)',
    replace: "content: slots.filter(({ how }) => how !== 'capped').map(({ result }) => result)",
  },
  {
    property: 'I1',
    name: 'results stand in the wrong order',
    file: 'loop/turn.ts',
    find: 'content: slots.map(({ result }) => result)',
    replace: 'content: slots.map(({ result }) => result).reverse()',
  },
  {
    property: 'I1',
    name: 'a run that is broken off leaves calls unanswered',
    file: 'loop/turn.ts',
    find: 'return end(say(state, resultsOf(slots)), outcome);',
    replace: 'return end(state, outcome);',
  },
  {
    property: 'I1',
    name: 'an id that comes twice in one reply is kept',
    file: 'loop/history.ts',
    find: "if (id === '' || inReply.has(id) || has(history, id))",
    replace: "if (id === '' || has(history, id))",
  },
  {
    property: 'I1',
    name: 'an id of an earlier turn is kept',
    file: 'loop/history.ts',
    find: "if (id === '' || inReply.has(id) || has(history, id))",
    replace: "if (id === '' || inReply.has(id))",
  },
  {
    property: 'I1',
    name: 'an empty id is kept',
    file: 'loop/history.ts',
    find: "if (id === '' || inReply.has(id) || has(history, id))",
    replace: 'if (inReply.has(id) || has(history, id))',
  },
  {
    property: 'I1',
    name: 'a result from a client is taken for a success',
    file: 'loop/step.ts',
    find: 'return settle(call, event.content, event.isError);',
    replace: 'return settle(call, event.content, false);',
  },
  {
    property: 'I1',
    name: 'input that came too late is lost at the end',
    file: 'loop/turn.ts',
    find: "return { state: { ...land(state), phase: { type: 'ended', outcome } }",
    replace: "return { state: { ...state, phase: { type: 'ended', outcome } }",
  },
];
