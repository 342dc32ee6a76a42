// Pure: what the numbers of several looks at the proxy mean.

// Counts rise since the proxy's start; what happened lately is the difference to an earlier look.
export class History {
  constructor(seconds) {
    this.seconds = seconds;
    this.looks = [];
  }

  add(at, counts) {
    this.looks.push({ at, counts });
    // The youngest one that is old enough stays.
    while (this.looks.length > 2 && this.looks[1].at <= at - this.seconds) this.looks.shift();
  }

  clear() {
    this.looks = [];
  }

  get first() {
    return this.looks[0];
  }

  get last() {
    return this.looks[this.looks.length - 1];
  }

  get elapsed() {
    return this.looks.length < 2 ? 0 : this.last.at - this.first.at;
  }

  // By how much a count, found by `read`, has risen; null where it is not known in both looks.
  rise(read) {
    if (this.looks.length < 2) return null;
    const before = read(this.first.counts);
    const now = read(this.last.counts);
    return before === undefined || now === undefined || now < before ? null : now - before;
  }

  rate(read) {
    const rise = this.rise(read);
    return rise === null || this.elapsed <= 0 ? null : rise / this.elapsed;
  }

  // Mean of times that were measured meanwhile, seconds.
  mean(read) {
    const count = this.rise((counts) => read(counts)?.count);
    const sum = this.rise((counts) => read(counts)?.sum);
    return count && sum !== null ? sum / count : null;
  }
}

const FAILED = ["server_error", "connect_failed", "reset", "timeout"];

export function failedLegs(worker) {
  return FAILED.reduce((sum, outcome) => sum + (worker.ended[outcome] ?? 0), 0);
}

export function countsOfWorkers(status) {
  return new Map(
    status.workers.map((worker) => [
      keyOf(worker),
      { placed: worker.placed, failed: failedLegs(worker), latency: worker.latency },
    ]),
  );
}

export function countsOfRequests(status) {
  const requests = Object.values(status.requests).reduce((sum, number) => sum + number, 0);
  return {
    requests,
    errors: status.requests.error ?? 0,
    overhead: status.overhead,
    firstByte: status.first_byte.counts,
  };
}

export function keyOf(worker) {
  return `${worker.role} ${worker.worker}`;
}

// Observations per bucket between two looks, from cumulated counts; null when there were none.
export function bucketsBetween(before, now) {
  const rises = now.map((count, at) => count - (before?.[at] ?? 0));
  const buckets = rises.map((count, at) => count - (at ? rises[at - 1] : 0));
  return rises[rises.length - 1] > 0 && buckets.every((count) => count >= 0) ? buckets : null;
}

// Interpolated within its bucket, as Prometheus does; the last bucket has no upper bound.
export function quantile(share, buckets, bounds) {
  const total = buckets.reduce((sum, count) => sum + count, 0);
  let rank = share * total;
  for (let at = 0; at < bounds.length; at += 1) {
    if (rank <= buckets[at] && buckets[at] > 0) {
      const low = at ? bounds[at - 1] : 0;
      return low + ((bounds[at] - low) * rank) / buckets[at];
    }
    rank -= buckets[at];
  }
  return bounds[bounds.length - 1];
}

const digits = (value) => (value >= 100 ? 0 : value >= 10 ? 1 : 2);

export function shownRate(rate) {
  return rate === null ? "–" : rate === 0 ? "0" : rate.toFixed(digits(rate));
}

export function shownSeconds(seconds) {
  if (seconds === null || seconds === undefined) return "–";
  if (seconds === 0) return "0 ms";
  const [value, unit] =
    seconds < 0.001 ? [seconds * 1e6, "µs"] : seconds < 1 ? [seconds * 1e3, "ms"] : [seconds, "s"];
  return `${Number(value.toPrecision(3))} ${unit}`;
}

export function shownDuration(seconds) {
  if (seconds === undefined) return "–";
  const whole = Math.floor(seconds);
  const parts = [
    [Math.floor(whole / 86400), "d"],
    [Math.floor(whole / 3600) % 24, "h"],
    [Math.floor(whole / 60) % 60, "min"],
    [whole % 60, "s"],
  ];
  const from = parts.findIndex(([value]) => value > 0);
  if (from < 0) return "0 s";
  return parts.slice(from, from + 2).map(([value, unit]) => `${value} ${unit}`).join(" ");
}

export function shownBytes(bytes) {
  return bytes === undefined ? "–" : `${(bytes / 2 ** 20).toFixed(0)} MiB`;
}

export function shownCount(count) {
  return count === undefined ? "–" : count.toLocaleString("en-US");
}
