//! What a rate limit means for the other calls of a client.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::{Instant, sleep_until};

use crate::error::{Error, Result};

/// What reached a rate limit: an operation with a model, as `chat m`.
///
/// A call that is told to wait speaks for all others of its name, so they wait with it. When
/// the wait is over they go out one after another, ever faster: a limit that is still there refuses
/// a few of them and not all, and those behind wait again without having spent an attempt.
#[derive(Default)]
pub(crate) struct CoolDowns {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    names: HashMap<Box<str>, CoolDown>,
    /// How many cool-downs there were.
    count: u64,
    /// From how many names on those that are over are looked for.
    crowded: usize,
}

#[derive(Debug)]
struct CoolDown {
    /// A later failure begins a new one, and the places in the old one are void.
    number: u64,
    until: Instant,
    /// The time in which the number of calls that go out doubles.
    step: Duration,
    /// How many calls have a place in the queue behind it.
    places: u32,
    cause: Error,
}

/// When a call may go out.
#[derive(Debug)]
struct Place {
    number: u64,
    at: Instant,
    cause: Error,
}

impl CoolDowns {
    /// Holds the calls of a name back for a while, after a failure.
    pub(crate) fn begin(&self, name: &str, wait: Duration, cause: &Error) {
        let now = Instant::now();
        // With room for the queue behind it. What the clock can't hold nobody waits for.
        let Some(until) = now.checked_add(wait).filter(|until| until.checked_add(ROOM).is_some()) else {
            return;
        };
        let step = (wait / 4).min(LONGEST_STEP);
        let mut state = self.lock();
        // Each time that their number has doubled: looking at all of them takes time.
        if state.names.len() >= state.crowded.max(64) {
            state.names.retain(|_, cool_down| !cool_down.is_over(now));
            state.crowded = state.names.len() * 2;
        }
        state.count += 1;
        let number = state.count;
        // It is told to other callers, who must not see what came of this one's reply.
        let cause = cause.clone().with_partial(None);
        let before = state.names.get(name).map(|before| (before.until, before.step));
        let (until, step) = before.map_or((until, step), |before| (until.max(before.0), step.max(before.1)));
        state.names.insert(name.into(), CoolDown { number, until, step, places: 0, cause });
    }

    /// Waits until a call may go out. Before each wait it tells what it waits for.
    ///
    /// # Errors
    /// What it would wait for, if that is beyond the deadline. `None` is none.
    pub(crate) async fn pass(
        &self,
        name: &str,
        deadline: Option<Instant>,
        mut waiting_for: impl FnMut(&Error),
    ) -> Result<()> {
        while let Some(place) = self.place(name) {
            if deadline.is_some_and(|deadline| place.at > deadline) {
                return Err(place.cause);
            }
            waiting_for(&place.cause);
            sleep_until(place.at).await;
            if self.is_current(name, &place) {
                break;
            }
        }
        Ok(())
    }

    /// A place in the queue, `None` where nothing holds the calls back.
    fn place(&self, name: &str) -> Option<Place> {
        let now = Instant::now();
        let mut state = self.lock();
        let cool_down = state.names.get_mut(name)?;
        if cool_down.is_over(now) {
            state.names.remove(name);
            return None;
        }
        let at = cool_down.turn(cool_down.places);
        cool_down.places += 1;
        Some(Place { number: cool_down.number, at, cause: cool_down.cause.clone() })
    }

    /// Ends what holds calls back, after a success with nobody in the queue.
    pub(crate) fn succeeded(&self, name: &str) {
        let now = Instant::now();
        let mut state = self.lock();
        if state.names.get(name).is_some_and(|cool_down| cool_down.is_empty(now)) {
            state.names.remove(name);
        }
    }

    /// True if a place still counts: no cool-down began after it was given.
    fn is_current(&self, name: &str, place: &Place) -> bool {
        self.lock().names.get(name).is_none_or(|cool_down| cool_down.number == place.number)
    }

    /// True if calls have to wait.
    pub(crate) fn is_cooling(&self, name: &str) -> bool {
        self.lock().names.get(name).is_some_and(|cool_down| Instant::now() < cool_down.until)
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl CoolDown {
    /// True if nobody has to wait any longer, whoever comes.
    fn is_over(&self, now: Instant) -> bool {
        now >= self.turn(self.places).max(self.until + self.step * SETTLED)
    }

    /// True if all that have a place had their turn.
    fn is_empty(&self, now: Instant) -> bool {
        now >= self.turn(self.places.saturating_sub(1))
    }

    /// When a place in the queue has its turn: one at once, and from then on their number doubles
    /// with each step.
    fn turn(&self, place: u32) -> Instant {
        self.until + self.step.mul_f64(f64::from(place.saturating_add(1)).log2())
    }
}

impl fmt::Debug for CoolDowns {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(self.lock().names.iter()).finish()
    }
}

/// A step is a quarter of the server's wait, and no longer than this.
const LONGEST_STEP: Duration = Duration::from_millis(500);

/// A queue in which nobody came for so many steps is no longer kept.
const SETTLED: u32 = 20;

/// Longer than any queue is.
const ROOM: Duration = Duration::from_secs(60);

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use tokio::task::JoinSet;
    use tokio::time::sleep;

    use super::*;
    use crate::error::ErrorKind;
    use crate::messages::Message;

    const SECOND: Duration = Duration::from_secs(1);
    const STEP: Duration = LONGEST_STEP;

    fn cause() -> Error {
        Error::new(ErrorKind::Api, "429")
    }

    async fn pass(cool_downs: &CoolDowns, name: &str) {
        cool_downs.pass(name, None, |_| {}).await.unwrap();
    }

    #[tokio::test(start_paused = true)]
    async fn a_cool_down_holds_its_name_and_no_other() {
        let cool_downs = CoolDowns::default();
        let start = Instant::now();
        cool_downs.begin("a", SECOND * 2, &cause());
        pass(&cool_downs, "b").await;
        assert_eq!(start.elapsed(), Duration::ZERO);
        assert!(cool_downs.is_cooling("a") && !cool_downs.is_cooling("b"));
        // A shorter wait that is told later takes nothing from the longer one.
        cool_downs.begin("a", SECOND, &cause());
        pass(&cool_downs, "a").await;
        assert!(
            start.elapsed() >= SECOND * 2 && start.elapsed() < SECOND * 2 + STEP,
            "{:?}",
            start.elapsed()
        );
        assert!(!cool_downs.is_cooling("a"));
        // Nobody else was there, so the next one goes at once.
        cool_downs.succeeded("a");
        let start = Instant::now();
        pass(&cool_downs, "a").await;
        assert_eq!(start.elapsed(), Duration::ZERO);
    }

    #[tokio::test(start_paused = true)]
    async fn the_queue_goes_out_twice_as_fast_with_each_step() {
        let cool_downs = CoolDowns::default();
        cool_downs.begin("m", SECOND * 2, &cause());
        let until = Instant::now() + SECOND * 2;
        let at: Vec<_> = (0..1000).map(|_| cool_downs.place("m").unwrap().at - until).collect();
        assert_eq!(at[0], Duration::ZERO);
        for (steps, place) in [(1, 1), (2, 3), (3, 7), (9, 511)] {
            assert_eq!(at[place], STEP * steps, "place {place}");
        }
        assert!(at.is_sorted());
        // A success of the first one does not let the others loose.
        sleep(SECOND * 2 + STEP).await;
        cool_downs.succeeded("m");
        assert!(cool_downs.place("m").unwrap().at > Instant::now() + SECOND);
        // What nobody needs any longer is not kept.
        sleep(STEP * SETTLED).await;
        assert!(cool_downs.place("m").is_none());
        assert!(cool_downs.lock().names.is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn a_short_wait_makes_a_short_queue() {
        let cool_downs = CoolDowns::default();
        let start = Instant::now();
        cool_downs.begin("m", Duration::from_millis(4), &cause());
        let last = (0..1024).map(|_| cool_downs.place("m").unwrap().at).last().unwrap();
        assert_eq!(last - start, Duration::from_millis(4 + 10));
        // The longest wait decides, whoever comes last.
        cool_downs.begin("m", SECOND * 2, &cause());
        cool_downs.begin("m", Duration::from_millis(4), &cause());
        cool_downs.place("m").unwrap();
        assert_eq!(cool_downs.place("m").unwrap().at - start, SECOND * 2 + STEP);
    }

    #[tokio::test(start_paused = true)]
    async fn names_that_are_over_are_forgotten() {
        let cool_downs = CoolDowns::default();
        let mut most = 0;
        for name in 0..10_000 {
            cool_downs.begin(&name.to_string(), Duration::from_millis(1), &cause());
            sleep(Duration::from_millis(2)).await;
            most = most.max(cool_downs.lock().names.len());
        }
        assert!(most <= 130, "{most} names were kept");
    }

    #[tokio::test(start_paused = true)]
    async fn a_place_in_an_older_queue_is_void() {
        let cool_downs = CoolDowns::default();
        let start = Instant::now();
        cool_downs.begin("m", SECOND, &cause());
        let mut waiting = std::pin::pin!(pass(&cool_downs, "m"));
        assert!(
            std::future::poll_fn(|cx| std::task::Poll::Ready(waiting.as_mut().poll(cx))).await.is_pending()
        );
        cool_downs.begin("m", SECOND * 5, &cause());
        waiting.await;
        assert!(start.elapsed() >= SECOND * 5);
        assert_eq!(cool_downs.lock().names["m"].number, 2);
    }

    #[tokio::test(start_paused = true)]
    async fn a_place_in_a_queue_that_is_gone_is_void_in_the_next() {
        let cool_downs = CoolDowns::default();
        cool_downs.begin("m", SECOND, &cause());
        let place = cool_downs.place("m").unwrap();
        sleep(SECOND).await;
        cool_downs.succeeded("m");
        assert!(cool_downs.is_current("m", &place));
        cool_downs.begin("m", SECOND, &cause());
        assert!(!cool_downs.is_current("m", &place));
    }

    #[tokio::test(start_paused = true)]
    async fn what_others_are_told_has_nothing_of_the_reply() {
        let cool_downs = CoolDowns::default();
        let partial = Message::from_json(r#"{"content":[{"type":"text","text":"private"}]}"#).unwrap();
        cool_downs.begin("m", SECOND, &cause().with_partial(Some(partial)));
        let error = cool_downs.pass("m", Some(Instant::now()), |_| {}).await.unwrap_err();
        assert_eq!((error.to_string().as_str(), error.partial_message().is_some()), ("429", false));
    }

    #[tokio::test(start_paused = true)]
    async fn no_wait_is_too_long_for_the_clock() {
        let cool_downs = CoolDowns::default();
        // Around the longest that the clock holds, found by halves.
        let (mut fits, mut too_long) = (Duration::ZERO, Duration::MAX);
        while too_long - fits > Duration::from_nanos(1) {
            let middle = fits + (too_long - fits) / 2;
            match Instant::now().checked_add(middle) {
                Some(_) => fits = middle,
                None => too_long = middle,
            }
        }
        for wait in [too_long, fits, fits - ROOM, fits - ROOM * 2, SECOND] {
            cool_downs.begin("m", wait, &cause());
            let deadline = Instant::now() + SECOND * 60;
            let outcome = cool_downs.pass("m", Some(deadline), |_| {}).await;
            assert_eq!(outcome.is_err(), wait < fits && wait > SECOND, "{wait:?}");
            cool_downs.lock().names.clear();
        }
    }

    /// A limit that stays: each call ends in it, and none waits for longer than it wants.
    #[tokio::test(start_paused = true)]
    async fn nobody_waits_for_ever() {
        const LONGEST: Duration = Duration::from_secs(60);
        let cool_downs = Arc::new(CoolDowns::default());
        let mut calls = JoinSet::new();
        for _ in 0..100 {
            let cool_downs = Arc::clone(&cool_downs);
            calls.spawn(async move {
                let mut longest = Duration::ZERO;
                for _ in 0..3 {
                    let start = Instant::now();
                    let outcome = cool_downs.pass("m", Some(start + LONGEST), |_| {}).await;
                    longest = longest.max(start.elapsed());
                    if outcome.is_err() {
                        break;
                    }
                    cool_downs.begin("m", SECOND * 5, &cause());
                    sleep(SECOND * 5).await;
                }
                longest
            });
        }
        let longest = calls.join_all().await.into_iter().max().unwrap();
        println!("the longest wait was {longest:?}");
        assert!(longest > SECOND * 20 && longest <= LONGEST, "{longest:?}");
    }

    /// A server that answers so many requests a second and tells the others to wait.
    struct Limited {
        tokens: f64,
        filled: Instant,
        refusals: u32,
    }

    const PER_SECOND: f64 = 100.0;

    impl Limited {
        fn answers(&mut self) -> bool {
            let now = Instant::now();
            let fresh = (now - self.filled).as_secs_f64() * PER_SECOND;
            (self.tokens, self.filled) = ((self.tokens + fresh).min(PER_SECOND), now);
            let answers = self.tokens >= 1.0;
            match answers {
                true => self.tokens -= 1.0,
                false => self.refusals += 1,
            }
            answers
        }
    }

    /// A thousand calls of three attempts each, all at once. Gives the refusals and the calls that
    /// had to give up.
    async fn stampede(cool_downs: Option<Arc<CoolDowns>>) -> (u32, usize) {
        let limited = Limited { tokens: PER_SECOND, filled: Instant::now(), refusals: 0 };
        let server = Arc::new(Mutex::new(limited));
        let mut calls = JoinSet::new();
        for call in 0..1000_u32 {
            let (cool_downs, server) = (cool_downs.clone(), Arc::clone(&server));
            calls.spawn(async move {
                for attempt in 0..3 {
                    if let Some(cool_downs) = &cool_downs {
                        pass(cool_downs, "m").await;
                    }
                    sleep(Duration::from_millis(100)).await;
                    if server.lock().unwrap().answers() {
                        return true;
                    }
                    if let Some(cool_downs) = &cool_downs {
                        cool_downs.begin("m", SECOND * 2, &cause());
                    }
                    // The spread of a server's wait.
                    let chance = f64::from((call * 7919 + attempt * 104_729) % 1000) / 1000.0;
                    sleep(SECOND * 2 + (SECOND / 2).mul_f64(chance)).await;
                }
                false
            });
        }
        let given_up = calls.join_all().await.into_iter().filter(|answered| !answered).count();
        let refusals = server.lock().unwrap().refusals;
        (refusals, given_up)
    }

    #[tokio::test(start_paused = true)]
    async fn a_thousand_calls_do_not_stampede() {
        let (alone, lost_alone) = stampede(None).await;
        let (together, lost_together) = stampede(Some(Arc::default())).await;
        println!("refusals: {alone} alone, {together} together; given up: {lost_alone} and {lost_together}");
        // 900 were under way when the first refusal came.
        assert!(together < 900 + 250, "{together} refusals");
        assert!(alone > 2 * together, "{alone} and {together} refusals");
        assert!(lost_alone > 500 && lost_together == 0, "{lost_alone} and {lost_together} gave up");
    }
}
