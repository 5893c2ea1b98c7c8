/** Loaded before a program: its clock is 60 seconds ahead. */
const now = Date.now;
Date.now = () => now() + 60_000;
