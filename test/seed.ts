import fc from 'fast-check';

/** Property tests use the same cases in each run. Another seed generates others: `TREADLE_SEED=7 npm test`. */
fc.configureGlobal({ seed: Number(process.env['TREADLE_SEED'] ?? 20_251_115) });

// Keys and addresses in the developer's own environment must not change what tests see, or get their requests.
for (const name of [
  'OPENAI_API_KEY',
  'OPENAI_BASE_URL',
  'ANTHROPIC_BASE_URL',
  'GOOGLE_GEMINI_BASE_URL',
  'OLLAMA_HOST',
]) {
  delete process.env[name];
}
