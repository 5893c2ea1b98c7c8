/** A model, a tool and an answer. Run it: npm run example quickstart */
import { runLoop, tool } from '@treadle/core';
import { demo } from '@treadle/models';
import { z } from 'zod';

const weather = tool({
  name: 'get_weather',
  description: 'Current weather for a city',
  input: z.object({ city: z.string() }),
  execute: ({ city }) => `12 degrees and rain in ${city}`,
});

// demo() follows a few fixed rules. For a real model: openaiChat({ model: 'gpt-5-mini' }), with OPENAI_API_KEY set.
const result = await runLoop({ model: demo(), tools: [weather], input: 'What is the weather in Oslo?' });
console.log(result.orThrow().text);
