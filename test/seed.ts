import fc from 'fast-check';

/** Property tests use the same cases in each run. Another seed generates others: `TREADLE_SEED=7 npm test`. */
fc.configureGlobal({ seed: Number(process.env['TREADLE_SEED'] ?? 20_251_115) });
