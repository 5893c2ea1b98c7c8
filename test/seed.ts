import fc from 'fast-check';

/** Properties are tried with the same cases each time. Another seed tries others: `TREADLE_SEED=7 npm test`. */
fc.configureGlobal({ seed: Number(process.env['TREADLE_SEED'] ?? 20_251_115) });
