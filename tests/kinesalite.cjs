// kinesalite as a Kinesis that can be relied on for load, crashes and reshards, and that fails when told to.
//
// Started by tests/kinesalite.py with its settings as one JSON argument. A second server, the
// control, takes `{"error_probability": 0.3, "clock_offset_ms": 0}` by PUT while it runs.
'use strict'
const http = require('http')

const settings = JSON.parse(process.argv[2])
const control = {error_probability: 0, clock_offset_ms: 0}
let state = settings.seed >>> 0

// A repeatable sequence (mulberry32): Math.random cannot be seeded.
function random() {
  state = (state + 0x6d2b79f5) >>> 0
  let t = Math.imul(state ^ (state >>> 15), state | 1)
  t ^= t + Math.imul(t ^ (t >>> 7), t | 61)
  return ((t ^ (t >>> 14)) >>> 0) / 4294967296
}

const realNow = Date.now
Date.now = () => realNow() + control.clock_offset_ms

const db = require('kinesalite/db')

// Replaces one of kinesalite's actions before its server loads it.
function wrap(action, make) {
  const path = require.resolve(`kinesalite/actions/${action}`)
  const original = require(path)
  require.cache[path].exports = make(original)
}

const refused = {}
function throttled(action, error, original) {
  return (store, data, done) => {
    if (random() < control.error_probability) {
      refused[action] = (refused[action] || 0) + 1
      return done(db.clientError(error, `${action} is throttled by the test`))
    }
    original(store, data, done)
  }
}

const MOST_BYTES = 10 * 1024 * 1024 // of one GetRecords answer (Kinesis service limit)

// AWS ends an answer at 10 MiB, and tells how far behind it is; kinesalite does neither.
function asAws(original) {
  const get = (store, data) =>
    new Promise((resolve, reject) => original(store, data, (e, a) => (e ? reject(e) : resolve(a))))
  return async (store, data, done) => {
    let answer
    try {
      answer = await get(store, data)
      let bytes = 0
      const fitting = answer.Records.findIndex((r) => (bytes += Buffer.byteLength(r.Data, 'base64')) > MOST_BYTES)
      if (fitting > 0) answer = await get(store, {...data, Limit: fitting})
      // Trimmed records count against its limit: an empty answer may have live ones behind it.
      let next = answer
      for (let looks = 0; looks < 3 && next.NextShardIterator; looks++) {
        next = await get(store, {ShardIterator: next.NextShardIterator, Limit: answer.Records.length ? 1 : 10000})
        const first = next.Records[0]
        if (first) answer.MillisBehindLatest = Math.max(1, Date.now() - first.ApproximateArrivalTimestamp * 1000)
        if (first || answer.Records.length) break
      }
    } catch (error) {
      return done(error)
    }
    done(null, answer)
  }
}

wrap('getRecords', (original) => throttled('GetRecords', 'ProvisionedThroughputExceededException', asAws(original)))

// A moment after a shard's last record is the shard's end; kinesalite never answers then. The end is taken
// before the look, so that what arrives meanwhile is behind it.
function withEnd(original) {
  return (store, data, done) => {
    if (data.ShardIteratorType !== 'AT_TIMESTAMP') return original(store, data, done)
    original(store, {...data, ShardIteratorType: 'LATEST', Timestamp: null}, (failed, end) => {
      if (failed) return done(failed)
      const patience = setTimeout(() => answer(null, end), 500)
      let answered = false
      function answer(error, found) {
        clearTimeout(patience)
        if (!answered) done(error, found)
        answered = true
      }
      original(store, data, answer)
    })
  }
}

wrap('getShardIterator', (original) =>
  throttled('GetShardIterator', 'ProvisionedThroughputExceededException', withEnd(original)))
wrap('listShards', (original) => throttled('ListShards', 'LimitExceededException', original))

// Since 2025 a stream may take records up to 10 MiB; kinesalite knows the old limit only.
const MOST_RECORD_BYTES = 10 * 1024 * 1024
require('kinesalite/validations/putRecord').types.Data.lengthLessThanOrEqual = MOST_RECORD_BYTES
require('kinesalite/validations/putRecords').types.Records.children.children.Data.lengthLessThanOrEqual =
  MOST_RECORD_BYTES

// It throws when a client goes away in the middle of a request, as a killed driver does.
process.on('uncaughtException', (error) => {
  if (error.code !== 'ECONNRESET' && error.code !== 'EPIPE') {
    console.error(error.stack)
    process.exit(1)
  }
})

require('kinesalite')({
  shardLimit: settings.shard_limit,
  createStreamMs: 20,
  deleteStreamMs: 20,
  updateStreamMs: settings.update_stream_ms,
}).listen(settings.port, '127.0.0.1')

http
  .createServer((request, response) => {
    let body = ''
    request.on('data', (part) => (body += part))
    request.on('end', () => {
      if (body) Object.assign(control, JSON.parse(body))
      response.setHeader('Content-Type', 'application/json')
      response.end(JSON.stringify({...control, refused}))
    })
  })
  .listen(settings.control_port, '127.0.0.1', () => console.log('ready'))
