//! The faults, and what each of them must end in.

use agentloop::ErrorKind;

/// What goes wrong, once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Strike {
    /// Nobody listens.
    Refuse,
    /// Somebody listens, and the connection is never made.
    Jam,
    CloseAtAccept,
    ResetAtAccept,
    /// Nothing is read and nothing is answered.
    BlackHole,
    Reset,
    Stall,
    /// Closed for both directions.
    Cut,
    /// Closed for the response alone.
    HalfClose,
    Delay,
    /// Byte by byte.
    Drip,
    FlipStatus,
    FlipHeader,
    FlipJson,
    FlipUtf8,
    /// The length, or the size of a chunk, is no number.
    FlipFraming,
    /// An answer to a request that is not read.
    Early(u16),
    /// The same, and a reset that may overtake it.
    EarlyReset(u16),
    Continue,
    EarlyHints,
    /// Several of both.
    Interim,
    LongerAndOpen,
    LongerAndClosed,
    Shorter,
    LengthOfZero,
    /// A header of so many bytes.
    Header(usize),
    /// So many headers.
    Headers(usize),
    /// A response without a body.
    Bare(u16),
    /// A connection that is kept, and closed without a word.
    Stale,
    /// A connection that is kept, and closed with a response that nobody asked for.
    StaleAnswer,
    /// A connection that is kept, and brings the same reply once more.
    Surplus,
}

/// Where a response is when the fault strikes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    /// Before there is a request.
    Connection,
    /// The head of the request is read, and no more.
    Request,
    BeforeHead,
    InHead,
    InBody,
    Behind,
}

/// What a request ends in that meets a fault once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Expect {
    /// The reply.
    Right,
    /// One of these errors, unless it is sent again.
    Retried(&'static [ErrorKind]),
    /// One of these errors, unless it is sent again, and that only if nobody saw an event.
    Broken(&'static [ErrorKind]),
    /// This error, and it is not sent again.
    Final(&'static [ErrorKind]),
}

/// A fault and what it must end in, for a plain reply and for a stream.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Row {
    pub(crate) strike: Strike,
    pub(crate) place: Place,
    pub(crate) plain: Expect,
    pub(crate) streamed: Expect,
}

impl Strike {
    /// Ends in a limit of time, which is short then.
    pub(crate) fn is_silence(self) -> bool {
        matches!(self, Self::Jam | Self::BlackHole | Self::Stall | Self::LongerAndOpen)
    }

    /// Stays until it is lifted, since nothing tells the proxy that it struck.
    pub(crate) fn is_of_the_door(self) -> bool {
        matches!(self, Self::Refuse | Self::Jam)
    }
}

const fn both(strike: Strike, place: Place, expect: Expect) -> Row {
    Row { strike, place, plain: expect, streamed: expect }
}

const fn row(strike: Strike, place: Place, plain: Expect, streamed: Expect) -> Row {
    Row { strike, place, plain, streamed }
}

const RESPONSE: &[ErrorKind] = &[ErrorKind::Api];
const DECODE: &[ErrorKind] = &[ErrorKind::Decode];
const REFUSED: &[ErrorKind] = &[ErrorKind::Connect];
const TIMEOUT: &[ErrorKind] = &[ErrorKind::Timeout];
const TRANSPORT: &[ErrorKind] = &[ErrorKind::Transport];
/// A reset at once may be seen while connecting or after it.
const RESET_AT_ONCE: &[ErrorKind] = &[ErrorKind::Connect, ErrorKind::Transport];
/// A reset may overtake the answer before it.
const RESPONSE_OR_RESET: &[ErrorKind] = &[ErrorKind::Api, ErrorKind::Transport];

pub(crate) const TABLE: &[Row] = {
    use Expect::{Broken, Final, Retried, Right};
    use Place::{BeforeHead, Behind, Connection, InBody, InHead, Request};
    &[
        both(Strike::Refuse, Connection, Retried(REFUSED)),
        both(Strike::Jam, Connection, Retried(TIMEOUT)),
        both(Strike::CloseAtAccept, Connection, Retried(TRANSPORT)),
        both(Strike::ResetAtAccept, Connection, Retried(RESET_AT_ONCE)),
        both(Strike::BlackHole, Connection, Retried(TIMEOUT)),
        both(Strike::Reset, Request, Retried(TRANSPORT)),
        both(Strike::Reset, BeforeHead, Retried(TRANSPORT)),
        both(Strike::Reset, InHead, Retried(TRANSPORT)),
        row(Strike::Reset, InBody, Retried(TRANSPORT), Broken(TRANSPORT)),
        both(Strike::Stall, Request, Retried(TIMEOUT)),
        both(Strike::Stall, BeforeHead, Retried(TIMEOUT)),
        both(Strike::Stall, InHead, Retried(TIMEOUT)),
        row(Strike::Stall, InBody, Retried(TIMEOUT), Broken(TIMEOUT)),
        both(Strike::Cut, Request, Retried(TRANSPORT)),
        both(Strike::Cut, BeforeHead, Retried(TRANSPORT)),
        both(Strike::Cut, InHead, Retried(TRANSPORT)),
        row(Strike::Cut, InBody, Retried(TRANSPORT), Broken(TRANSPORT)),
        both(Strike::HalfClose, BeforeHead, Retried(TRANSPORT)),
        both(Strike::HalfClose, InHead, Retried(TRANSPORT)),
        row(Strike::HalfClose, InBody, Retried(TRANSPORT), Broken(TRANSPORT)),
        both(Strike::Delay, BeforeHead, Right),
        both(Strike::Delay, InHead, Right),
        both(Strike::Delay, InBody, Right),
        both(Strike::Drip, BeforeHead, Right),
        both(Strike::FlipStatus, InHead, Retried(TRANSPORT)),
        both(Strike::FlipHeader, InHead, Retried(TRANSPORT)),
        both(Strike::FlipJson, InBody, Final(DECODE)),
        both(Strike::FlipUtf8, InBody, Final(DECODE)),
        row(Strike::FlipFraming, InBody, Retried(TRANSPORT), Broken(TRANSPORT)),
        both(Strike::Early(413), Request, Final(RESPONSE)),
        both(Strike::Early(503), Request, Retried(RESPONSE)),
        both(Strike::EarlyReset(503), Request, Retried(RESPONSE_OR_RESET)),
        both(Strike::Continue, BeforeHead, Right),
        both(Strike::EarlyHints, BeforeHead, Right),
        both(Strike::Interim, BeforeHead, Right),
        // A stream says by itself when it is whole.
        row(Strike::LongerAndOpen, InBody, Retried(TIMEOUT), Right),
        row(Strike::LongerAndClosed, InBody, Retried(TRANSPORT), Right),
        row(Strike::Shorter, InBody, Final(DECODE), Broken(TRANSPORT)),
        both(Strike::LengthOfZero, InBody, Retried(DECODE)),
        both(Strike::Header(1 << 20), InHead, Retried(TRANSPORT)),
        both(Strike::Headers(200), InHead, Retried(TRANSPORT)),
        both(Strike::Header(64 << 10), InHead, Right),
        // Nobody asked for another protocol.
        both(Strike::Bare(101), BeforeHead, Final(RESPONSE)),
        both(Strike::Bare(204), BeforeHead, Retried(DECODE)),
        both(Strike::Bare(304), BeforeHead, Final(DECODE)),
        both(Strike::Stale, Behind, Right),
        both(Strike::StaleAnswer, Behind, Right),
        both(Strike::Surplus, Behind, Right),
    ]
};
