import { expect, test } from 'vitest';
import { callIdFor, itemId, itemOrigin, newResponseId } from './ids.ts';

const RESPONSE = 'resp_00112233445566778899aabbccddeeff';

test('derives ids from the response, the turn and the number', () => {
  expect(itemId('message', RESPONSE, 2, 0)).toBe('msg_00112233445566778899aabbccddeeff_2_0');
  expect(itemId('reasoning', RESPONSE, 1, 1)).toBe('rs_00112233445566778899aabbccddeeff_1_1');
  expect(itemId('mcp_call', RESPONSE, 1, 12)).toBe('mcp_00112233445566778899aabbccddeeff_1_12');
  expect(itemId('function_call', RESPONSE, 10, 3)).toBe('fc_00112233445566778899aabbccddeeff_10_3');
  expect(callIdFor(RESPONSE, 3, 127)).toBe('call_00112233445566778899aabbccddeeff_3_127');
});

test('reads the origin from a derived id', () => {
  const callId = callIdFor(RESPONSE, 3, 127);
  const ids = [
    callId,
    ...(['message', 'reasoning', 'mcp_call', 'function_call'] as const).map((kind) => itemId(kind, RESPONSE, 3, 127)),
  ];
  for (const id of ids) expect(itemOrigin(id)).toMatchObject({ response: RESPONSE, turn: 3, number: 127 });
  expect(new Set(ids.map((id) => itemOrigin(id)!.turnKey)).size).toBe(1);
  const response = newResponseId();
  expect(itemOrigin(callIdFor(response, 1, 0))?.response).toBe(response);
});

test.each([
  '',
  'call_1',
  'call_00112233445566778899aabbccddeeff',
  'call_00112233445566778899aabbccddeeff_1',
  'call_00112233445566778899aabbccddeeff_1_-2',
  'call_00112233445566778899AABBCCDDEEFF_1_2',
  'call_00112233445566778899aabbccddeeff_1_2\n',
  'call_00112233445566778899aabbccddeeff_1_2_3',
  'fco_00112233445566778899aabbccddeeff_1_2',
  'resp_00112233445566778899aabbccddeeff',
])('%j is not an id of this server', (id) => {
  expect(itemOrigin(id)).toBeUndefined();
});
