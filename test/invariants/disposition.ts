/**
 * What must become of a call. `refused` is for the model to mend; `capped` and `spent` are the loop's own limits and no
 * errors of the model; `repeated` is the same call once too often. Of a typed agent's own: `held` until its output is
 * checked; `superseded` and `early` are answered at once, and so is an output that is `faulty`. None of them is an error
 * of the model.
 */
export type Disposition =
  | 'runs'
  | 'refused'
  | 'capped'
  | 'spent'
  | 'repeated'
  | 'held'
  | 'superseded'
  | 'early'
  | 'faulty';
