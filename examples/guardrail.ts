/** Checks of the input and of the answer that stop a run. Run it: npm run example guardrail */
import { runLoop, type Guardrail } from '@treadle/core';
import { scriptedModel } from '@treadle/core/testing';

/** True lets the run continue; a text is the reason to stop it. */
const noKeys: Guardrail = ({ text }) => !/\bsk-\w+/.test(text) || 'It contains a key.';
const onTopic: Guardrail = ({ text }) => text.includes('order') || 'Only questions about orders are answered.';

async function ask(input: string, answer: string): Promise<void> {
  // A scripted model, so that the example needs no key. Try openaiChat({ model }) of @treadle/models.
  const model = scriptedModel([answer]);
  const result = await runLoop({ model, input, guardrails: { input: [noKeys, onTopic], output: [noKeys] } });
  console.log(result.outcome?.type === 'failed' ? `Stopped: ${result.outcome.error.message}` : result.text);
}

await ask('Where is my order?', 'It arrives tomorrow.'); // prints: It arrives tomorrow.
await ask('Write a poem.', ''); // prints: Stopped: Only questions about orders are answered.
await ask('How do I read my order?', 'With the key sk-12345.'); // prints: Stopped: It contains a key.
