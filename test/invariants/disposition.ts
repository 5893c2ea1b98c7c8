/**
 * What must become of a call. `refused` is for the model to mend; `capped` and `spent` are the loop's own limits and no
 * errors of the model; `repeated` is the same call once too often.
 */
export type Disposition = 'runs' | 'refused' | 'capped' | 'spent' | 'repeated';
