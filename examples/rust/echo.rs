//! The echo example in Rust, with the declarations of librds' headers that it uses.
//!
//!     make librds && rustc examples/rust/echo.rs -L bin/librds -l static=rds
//!     ./echo -bind 10.0.0.1:4000
//!     ./echo -bind 10.0.0.2:0 -to 10.0.0.1:4000 hello again
//!
//! The server's answers carry the cookie of a region. The client writes its words there, and reads them back.
use std::ffi::{c_void, CStr, CString};
use std::os::raw::{c_char, c_int, c_uint};
use std::ptr::{null, null_mut};

#[repr(C)]
#[derive(Clone, Copy, Default)]
struct Addr {
    ip: [u8; 16],
    port: u16,
}

#[repr(C)]
struct Iovec {
    base: *mut c_void,
    len: usize,
}

#[repr(C)]
struct Segment {
    buffer: *mut c_void,
    off: usize,
    len: usize,
}

#[repr(C)]
struct Msg {
    addr: Addr,
    flags: u32,
    iov: *const Iovec,
    iovlen: usize,
    from: Segment,
    cookie: u64,
    op: *const Rdma,
    atomic: *const c_void,
    give_up_ms: u32,
    dst_inc: u32,
    zero_copy_cookie: u32,
    src_inc: u32,
    op_id: u64,
    atomic_id: u64,
    n: usize,
    len: usize,
    time_ns: i64,
    assembly_ns: u32,
    reserved: [u32; 5],
}

#[repr(C)]
struct Rdma {
    kind: u32,
    flags: u32,
    cookie: u64,
    remote_off: u64,
    local: *const Segment,
    segments: usize,
    token: u64,
}

const OP_WRITE: u32 = 1;
const OP_READ: u32 = 2;
const ALLOW_READ: c_uint = 1;
const ALLOW_WRITE: c_uint = 2;
const ADDR_TEXT: usize = 64;
const MEMORY: usize = 4096;

extern "C" {
    fn rds_open(options: *const c_void, client: *mut *mut c_void) -> c_int;
    fn rds_bind(client: *mut c_void, addr: *const Addr, socket: *mut *mut c_void) -> c_int;
    fn rds_local(socket: *mut c_void, addr: *mut Addr) -> c_int;
    fn rds_sendmsg(socket: *mut c_void, msg: *mut Msg) -> c_int;
    fn rds_recvmsg(socket: *mut c_void, msg: *mut Msg) -> c_int;
    fn rds_alloc(client: *mut c_void, size: usize, buffer: *mut *mut c_void) -> c_int;
    fn rds_buffer_mem(buffer: *mut c_void) -> *mut c_void;
    fn rds_register(socket: *mut c_void, buffer: *mut c_void, off: usize, len: usize, rights: c_uint, region: *mut *mut c_void) -> c_int;
    fn rds_region_cookie(region: *mut c_void) -> u64;
    fn rds_transfer(socket: *mut c_void, to: *const Addr, op: *const Rdma, completion: *mut c_void, timeout_ms: c_int) -> c_int;
    fn rds_close_wait(socket: *mut c_void, timeout_ms: c_int) -> c_int;
    fn rds_client_free(client: *mut c_void);
    fn rds_socket_free(socket: *mut c_void);
    fn rds_buffer_free(buffer: *mut c_void);
    fn rds_addr_parse(text: *const c_char, addr: *mut Addr) -> c_int;
    fn rds_addr_format(addr: *const Addr, text: *mut c_char, size: usize) -> *const c_char;
    fn rds_error_text(err: c_int) -> *const c_char;
}

/// Ends the program if a call has failed.
fn must(result: c_int, what: &str) {
    if result < 0 {
        let text = unsafe { CStr::from_ptr(rds_error_text(result)) };
        eprintln!("echo: {}: {}", what, text.to_string_lossy());
        std::process::exit(1);
    }
}

fn parse(text: &str) -> Addr {
    let mut addr = Addr::default();
    let c = CString::new(text).expect("an address has no NUL");
    must(unsafe { rds_addr_parse(c.as_ptr(), &mut addr) }, text);
    addr
}

/// A handle that a function stores.
fn made(what: &str, make: impl FnOnce(*mut *mut c_void) -> c_int) -> *mut c_void {
    let mut handle = null_mut();
    must(make(&mut handle), what);
    handle
}

struct Echo {
    client: *mut c_void,
    socket: *mut c_void,
    buffer: *mut c_void,
}

impl Echo {
    fn send(&self, data: &[u8], to: Addr, cookie: u64) {
        let iov = Iovec { base: data.as_ptr() as *mut c_void, len: data.len() };
        let mut msg: Msg = unsafe { std::mem::zeroed() };
        msg.addr = to;
        msg.iov = &iov;
        msg.iovlen = 1;
        msg.cookie = cookie;
        must(unsafe { rds_sendmsg(self.socket, &mut msg) }, "send");
    }

    fn recv(&self) -> (Vec<u8>, Addr, u64) {
        let mut data = vec![0u8; 1 << 20];
        let iov = Iovec { base: data.as_mut_ptr() as *mut c_void, len: data.len() };
        let mut msg: Msg = unsafe { std::mem::zeroed() };
        msg.iov = &iov;
        msg.iovlen = 1;
        must(unsafe { rds_recvmsg(self.socket, &mut msg) }, "receive");
        data.truncate(msg.n);
        (data, msg.addr, msg.cookie)
    }

    fn transfer(&self, kind: u32, to: &Addr, cookie: u64, len: usize) {
        let local = Segment { buffer: self.buffer, off: 0, len };
        let op = Rdma { kind, flags: 0, cookie, remote_off: 0, local: &local, segments: 1, token: 0 };
        must(unsafe { rds_transfer(self.socket, to, &op, null_mut(), 10_000) }, "RDMA");
    }

    /// The memory that is shared with the daemon.
    fn memory(&mut self) -> &mut [u8] {
        unsafe { std::slice::from_raw_parts_mut(rds_buffer_mem(self.buffer) as *mut u8, MEMORY) }
    }

    fn serve(&self) -> ! {
        let rights = ALLOW_READ | ALLOW_WRITE;
        let region = made("register", |r| unsafe { rds_register(self.socket, self.buffer, 0, MEMORY, rights, r) });
        let mut addr = Addr::default();
        let mut text = [0 as c_char; ADDR_TEXT];
        must(unsafe { rds_local(self.socket, &mut addr) }, "local");
        println!("serving {}", unsafe { CStr::from_ptr(rds_addr_format(&addr, text.as_mut_ptr(), ADDR_TEXT)) }.to_string_lossy());
        loop {
            let (data, from, _) = self.recv();
            self.send(&data, from, unsafe { rds_region_cookie(region) });
        }
    }

    fn ask(&mut self, word: &str, to: Addr) {
        self.send(word.as_bytes(), to, 0);
        let (data, _, cookie) = self.recv();
        println!("{}", String::from_utf8_lossy(&data));
        let len = word.len().min(MEMORY);
        if cookie == 0 || len == 0 {
            return; // the server is another example
        }
        self.memory()[..len].copy_from_slice(&word.as_bytes()[..len]);
        self.transfer(OP_WRITE, &to, cookie, len);
        self.memory()[..len].fill(0);
        self.transfer(OP_READ, &to, cookie, len);
        println!("{} is in the server's memory", String::from_utf8_lossy(&self.memory()[..len]));
    }
}

fn main() {
    let (mut bind, mut to, mut words) = (String::from("127.0.0.1:0"), None, Vec::new());
    let mut args = std::env::args().skip(1);
    while let Some(arg) = args.next() {
        match arg.as_str() {
            "-bind" => bind = args.next().unwrap_or_default(),
            "-to" => to = args.next(),
            _ => words.push(arg),
        }
    }
    let client = made("open", |c| unsafe { rds_open(null(), c) });
    let at = parse(&bind);
    let socket = made("bind", |s| unsafe { rds_bind(client, &at, s) });
    let buffer = made("alloc", |b| unsafe { rds_alloc(client, MEMORY, b) });
    let mut echo = Echo { client, socket, buffer };
    match to {
        None => echo.serve(),
        Some(to) => {
            let to = parse(&to);
            for word in &words {
                echo.ask(word, to);
            }
        }
    }
    unsafe {
        must(rds_close_wait(echo.socket, 10_000), "close");
        rds_buffer_free(echo.buffer);
        rds_socket_free(echo.socket);
        rds_client_free(echo.client);
    }
}
