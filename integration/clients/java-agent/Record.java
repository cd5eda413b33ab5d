// Records itself with the profiler that the agent for Java brings, with all that it knows to look at: `java Record RECORDING`.
import io.pyroscope.PyroscopeAsyncProfiler;
import io.pyroscope.vendor.one.profiler.AsyncProfiler;
import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.locks.LockSupport;

public class Record {
    static final List<Object> KEPT = new ArrayList<>();
    static final Object LOCK = new Object();
    static volatile long sink;

    static void knownBusyFunction(long until) {
        while (System.nanoTime() < until) {
            for (int number = 0; number < 1_000_000; number++) {
                sink += sink ^ number;
            }
        }
    }

    static void knownGreedyFunction() {
        for (int turn = 0; turn < 200; turn++) {
            KEPT.add(new byte[1 << 17]);
            KEPT.add(new byte[1 << 21].length);
        }
    }

    static void knownNativeFunction() {
        for (int turn = 0; turn < 50; turn++) {
            KEPT.add(ByteBuffer.allocateDirect(1 << 16));
        }
    }

    static void knownBlockedFunction() {
        synchronized (LOCK) {
            sink += 1;
        }
    }

    static void holdLock() throws InterruptedException {
        Thread other = new Thread(Record::knownBlockedFunction);
        synchronized (LOCK) {
            other.start();
            while (other.getState() != Thread.State.BLOCKED) Thread.onSpinWait();
            LockSupport.parkNanos(50_000_000);
        }
        other.join();
    }

    public static void main(String[] arguments) throws Exception {
        AsyncProfiler profiler = PyroscopeAsyncProfiler.getAsyncProfiler();
        String what = "event=itimer,interval=10ms,wall=20ms,alloc=64k,live,nativemem=1k,nofree,lock=1ms";
        profiler.execute("start,jfr," + what + ",file=" + arguments[0]);
        knownGreedyFunction();
        knownNativeFunction();
        holdLock();
        knownBusyFunction(System.nanoTime() + 1_000_000_000L);
        // Only what a collection has left is live.
        System.gc();
        profiler.execute("stop,file=" + arguments[0]);
    }
}
