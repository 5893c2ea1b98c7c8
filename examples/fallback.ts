/** Several models as one: if the first fails, the next is called. Run it: npm run example fallback */
import { runLoop } from '@treadle/core';
import { demo, openaiChat, router } from '@treadle/models';

const model = router({
  models: {
    // Nothing listens there. With a key: openaiChat({ model: 'gpt-5-mini', apiKey: process.env['OPENAI_API_KEY'] })
    main: openaiChat({ model: 'main-model', baseURL: 'http://127.0.0.1:1/v1' }),
    backup: demo(),
  },
  default: 'main',
  fallback: { main: ['backup'] },
  limits: { main: { concurrency: 8, requestsPerMinute: 300 } },
  maxRetries: 0, // of each model, before the next is called
});

const result = await runLoop({
  model,
  input: 'What is 6 * 7?',
  onItem(item) {
    if (item.type !== 'fact' || item.event.type !== 'model-replied') return;
    for (const { model: id, error } of item.event.attempts ?? []) console.log(`${id}: ${error?.code ?? 'replied'}`);
  },
});
console.log(result.text.split('\n')[0]);
