package dev.staffetta;

/** A module that starts and does nothing. */
public class Cart {
    public static void main(String[] arguments) {
        System.out.println("the module cart runs");
    }
}
