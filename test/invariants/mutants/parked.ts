import { accepts, mutant, without } from './mutant.ts';

/** Calls that wait outside of the run: their deadlines, their verification, and results from outside. */
export const parked = [
  mutant('I2', 'a parked call runs again after its verification', 'parkedAgain', () => () => undefined),
  mutant('I2', 'a call of the client never expires', 'clientSlot', () => (call) => ({ type: 'client', call })),
  mutant(
    'I3',
    'a parked call expires before its time',
    'fits',
    accepts(['deadline-passed'], (_, __, slot) => slot?.type === 'parked' && slot.expiresAt !== undefined),
  ),
  mutant(
    'I3',
    'a call of the client expires before its time',
    'fits',
    accepts(['deadline-passed'], (_, __, slot) => slot?.type === 'client' && slot.expiresAt !== undefined),
  ),
  mutant('I3', 'a result from outside is accepted after the deadline', 'isAnswerable', (original) => (slot) => {
    return original(slot, -Infinity);
  }),
  mutant('I3', 'a result from outside replaces that of a child run', 'isAnswerable', (original) => (slot, at) => {
    return original(slot.type === 'parked' ? { ...slot, waiting: [], call: without(slot.call, 'limits') } : slot, at);
  }),
  mutant('I3', 'a result from outside settles no parked call', 'isAnswerable', (original) => (slot, at) => {
    return slot.type === 'client' && original(slot, at);
  }),
  mutant(
    'I3',
    'a parked call that may run again is verified',
    'fits',
    accepts(['effect-lost'], (_, __, slot) => slot?.type === 'parked'),
  ),
  mutant('I3', 'a verification cannot park the call', 'fits', (original) => (state, event) => {
    return original(state, event) && !(event.type === 'tool-parked' && event.effect.includes('.verify.'));
  }),
  mutant(
    'I4',
    'a parked call is asked again at once after its verification',
    'parkedAgain',
    (original) => (slot) => original(slot, -Infinity),
  ),
  mutant('I4', 'a call that is parked again forgets its deadline', 'parkedSlot', (original) => (slot, event) => {
    return original({ type: 'running', call: slot.call }, event);
  }),
  mutant('I4', 'a call that parks after its deadline waits', 'unlessExpired', () => (_, slot) => slot),
  mutant('I4', 'a parked call forgets its deadline while it is verified', 'verifyParked', () => ({ call }) => {
    return { type: 'queued', call, verify: true };
  }),
  mutant(
    'I1',
    'a call that expires is reported as interrupted',
    'refusedSlot',
    (original) => (call, text, how, type) => {
      return original(call, text, how, type === 'timeout' ? 'interrupted' : type);
    },
  ),
  mutant(
    'I4',
    'a run is woken for a tool that is not asked',
    'isAskedAgain',
    () =>
      ({ type }) =>
        type === 'parked',
  ),
  mutant('I4', 'a run is not woken for a tool that is asked', 'isAskedAgain', () => () => false),
  mutant('I4', 'a run that its model asked to wait is not due', 'retryTime', () => () => undefined),
  mutant('I4', 'a run is due although its rules do not want that', 'retryTime', (original) => (state, error, at) => {
    return original({ ...state, rules: { ...state.rules, retryLater: state.rules.retryLater ?? 1 } }, error, at);
  }),
  mutant('I4', 'a run is due more often than its rules allow', 'retriesIn', () => () => 0),
];
