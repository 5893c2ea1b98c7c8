import { accepts, mutant, without } from './mutant.ts';

/** Questions of tools: they are answered once and in time, and a call continues when all have answers. */
export const questions = [
  mutant(
    'I3',
    'a question that is not open is answered',
    'fits',
    accepts(['question-answered'], (_, __, slot) => slot?.type === 'questioning'),
  ),
  mutant(
    'I3',
    'a question expires before its time',
    'fits',
    accepts(['deadline-passed'], (_, __, slot) => slot?.type === 'questioning'),
  ),
  mutant(
    'I3',
    'a parked call asks',
    'fits',
    accepts(['questions-asked'], (_, __, slot) => slot?.type === 'parked'),
  ),
  mutant(
    'I3',
    'a call that waits for answers is lost',
    'fits',
    accepts(['effect-lost'], (_, __, slot) => slot?.type === 'questioning'),
  ),
  mutant(
    'I4',
    'a call continues when one of its questions is answered',
    'withQuestionSettled',
    (original) => (slot, event) => ({ ...original(slot, event), type: 'queued' }) as unknown as typeof slot,
  ),
  mutant(
    'I4',
    'a call waits although all of its questions have answers',
    'withQuestionSettled',
    (original) => (slot, event) => ({ ...original(slot, event), type: 'questioning' }) as unknown as typeof slot,
  ),
  mutant(
    'I4',
    'a call that asks again forgets its answers',
    'askingQuestions',
    (original) => (slot, event) => original(without(slot, 'asked' as never), event),
  ),
  mutant('I4', 'a call that is repeated forgets its answers', 'askedIn', () => () => undefined),
  mutant(
    'I4',
    'an answer that comes too late counts',
    'settledQuestion',
    (original) => (asked, event) =>
      event.type === 'question-answered' ? original(without(asked, 'expiresAt'), event) : original(asked, event),
  ),
  mutant('I4', 'it is not recorded who answered', 'settledQuestion', (original) => (asked, event) => {
    return original(asked, event.type === 'question-answered' ? without(event, 'by') : event);
  }),
  mutant('live', 'answers are not found when the tool is called again', 'recordedQuestion', () => () => undefined),
];
